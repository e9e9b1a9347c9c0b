"""How a task ends: its coroutine, the first outcome, and who is told in which order. Source: behaviour TK-29..33.

It owns every write about tasks to an owner's log. It never raises into the host that runs it.
"""

from __future__ import annotations

import logging

import anyio

from retinue.agent.agent import Agent
from retinue.base.bus import Bus
from retinue.errors import RetinueError, error_record
from retinue.host.host import Host
from retinue.session.events import TaskEnded, TaskStarted
from retinue.tasks.entry import Entry
from retinue.tasks.record import Completed, Failed, Killed, TaskOutcome, TasksChanged, TaskSettled
from retinue.tasks.surfaces import Surfaces

__all__ = ["Settlement"]

_CUT_OFF = "its work was cut off together with what ran it"
_log = logging.getLogger("retinue")


class Settlement:
    """Runs tasks to their end and writes their starts and ends."""

    def __init__(self, host: Host, surfaces: Surfaces) -> None:
        self._host = host
        self._surfaces = surfaces

    def begin(self, entry: Entry) -> None:
        """The start is logged and the task waits for its end. A log that refuses costs the trace, not the task."""
        owner = entry.owner
        if owner is not None:
            try:
                tx = owner.transaction()
                tx.append(owner.session, TaskStarted(task_id=entry.id, kind=entry.kind, label=entry.label))
                tx.submit()
            except RetinueError as error:
                _log.warning("the start of task %s of agent %s could not be logged: %s", entry.id, owner.id, error)
        self._host.start(lambda: self._run(entry))

    async def _run(self, entry: Entry) -> None:
        try:
            self.settle(entry, await _outcome(entry))
        except anyio.get_cancelled_exc_class():
            # While the host suspends the start stays open in the log, and the next load writes the end.
            if not self._host.agents.is_suspending:
                self.settle(entry, Failed(_CUT_OFF))
            raise
        except Exception:
            _log.exception("task %s could not be settled", entry.id)
        finally:
            entry.over.set()

    def settle(self, entry: Entry, outcome: TaskOutcome) -> None:
        """The task has ended so, unless it has an end already.

        In this order: the outcome, whether somebody who waits is told, those who wait, the change, then one batch with
        the end and the notice. So a turn that the notice opens finds everything else done.
        """
        if entry.is_terminal:
            return
        entry.finish(outcome, self._host.clock.now_ms())
        entry.release()
        self.changed(entry.owner)
        self._write_end(entry)
        self.bus(entry.owner).publish(TaskSettled(entry.owner, entry.snapshot()))

    def force(self, entry: Entry, detail: str) -> None:
        """The task counts as failed although it did not say so, and what waits for it is cancelled."""
        _log.warning("task %s was given up: %s", entry.id, detail)
        self.settle(entry, Failed(detail))
        entry.scope.cancel()

    def _write_end(self, entry: Entry) -> None:
        owner = entry.owner
        if owner is None or entry.is_abandoned:
            return
        task = entry.snapshot()
        assert task.status != "running"
        assert task.status != "stopping"
        is_owed = not task.is_reported and not owner.is_closing and self._host.agents.is_live(owner)
        notice = self._surfaces.notice(owner, task) if is_owed else None
        try:
            tx = owner.transaction()
            tx.append(owner.session, TaskEnded(task_id=task.id, status=task.status, detail=task.detail))
            if notice is not None:
                tx.insert(notice)
            tx.submit()
        except RetinueError as error:
            _log.warning("the end of task %s of agent %s could not be logged: %s", task.id, owner.id, error)

    def bus(self, owner: Agent | None) -> Bus:
        """Where the owner's scope, and after it the host, hears of it."""
        return self._host.bus if owner is None else owner.bus

    def changed(self, owner: Agent | None) -> None:
        """Whoever shows the owner's tasks knows that they changed."""
        self.bus(owner).publish(TasksChanged(owner))


async def _outcome(entry: Entry) -> TaskOutcome:
    """What the producer says, or its violation: `done` must not raise. Source: behaviour TK-31."""
    try:
        with entry.scope:
            return _checked(await entry.hooks.done())
    except Exception as error:
        _log.exception("producer violation: the end of task %s raised", entry.id)
        return Failed(f"producer violation: {error_record(error)[1]}")
    return Failed(_CUT_OFF)


def _checked(outcome: object) -> TaskOutcome:
    if isinstance(outcome, Completed | Killed | Failed):
        return outcome
    raise TypeError(f"it ended with {outcome!r}, which is no outcome")
