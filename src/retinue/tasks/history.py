"""What a log says about tasks: pure folds over the events of one session."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.session.events import EndSeed, Event, TaskEnded, TaskStarted

__all__ = ["ended", "highest_numbers", "unfinished"]


def highest_numbers(events: Iterable[Event]) -> dict[str, int]:
    """The highest number used so far, by kind. Seeds count, so an id of a copied transcript is never given again."""
    highest: dict[str, int] = {}
    for event in events:
        if type(event.data) is TaskStarted:
            number = event.data.task_id.removeprefix(f"{event.data.kind}-")
            if number.isdecimal():
                highest[event.data.kind] = max(highest.get(event.data.kind, 0), int(number))
    return highest


def unfinished(events: Iterable[Event]) -> list[TaskStarted]:
    """Tasks that began in this session and have no end, oldest first. Those of a seed belong to another session."""
    begun: dict[str, TaskStarted] = {}
    for event in events:
        match event.data:
            case EndSeed():
                begun.clear()
            case TaskStarted():
                begun[event.data.task_id] = event.data
            case TaskEnded():
                begun.pop(event.data.task_id, None)
            case _:
                pass
    return list(begun.values())


def ended(events: Iterable[Event], task_id: str) -> TaskEnded | None:
    """How a task of this session ended, if its log knows."""
    found: TaskEnded | None = None
    for event in events:
        if type(event.data) is EndSeed:
            found = None
        elif type(event.data) is TaskEnded and event.data.task_id == task_id:
            found = event.data
    return found
