"""The live records behind the snapshots. Only the runtime changes them."""

from __future__ import annotations

import asyncio
from typing import TypeAlias, assert_never

import anyio

from retinue.agent.agent import Agent
from retinue.tasks.history import highest_numbers
from retinue.tasks.record import Completed, Failed, Hooks, Killed, Status, TaskOutcome, TaskSnapshot

__all__ = ["Bucket", "Entry", "Waiter"]

Waiter: TypeAlias = "asyncio.Future[TaskSnapshot]"
"""A bare future: cancelling its waiter marks it in the same instant, and a result it has cannot be taken back."""


class Entry:
    """One task. Its own cancel scope surrounds the wait for its end and is used as a last resort alone."""

    __slots__ = (
        "_owner",
        "detail",
        "finished_at",
        "hooks",
        "id",
        "is_abandoned",
        "is_reported",
        "kind",
        "label",
        "order",
        "output",
        "output_limit",
        "over",
        "scope",
        "started_at",
        "status",
        "stop_reason",
        "waiters",
    )

    def __init__(
        self,
        *,
        id: str,
        order: int,
        kind: str,
        label: str,
        owner: Agent | None,
        output_limit: int | None,
        hooks: Hooks,
        now_ms: int,
    ) -> None:
        self.id = id
        self.order = order
        """Place among all tasks of the runtime, in the order in which they began."""
        self.kind = kind
        self.label = label
        self._owner = owner
        self.output_limit = output_limit
        self.hooks = hooks
        self.started_at = now_ms
        self.finished_at: int | None = None
        self.status: Status = "running"
        self.detail: str | None = None
        self.output: str | None = None
        self.is_reported = False
        self.is_abandoned = False
        """The runtime goes away: the end is not logged, so that the next load of the owner tells it."""
        self.stop_reason: str | None = None
        """Why it was asked to end; the first reason counts."""
        self.waiters: list[Waiter] = []
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()
        """Nothing of it runs in this process any more."""

    @property
    def owner(self) -> Agent | None:
        """The exact agent that it belongs to."""
        return self._owner

    @property
    def is_terminal(self) -> bool:
        """It has ended."""
        return self.finished_at is not None

    def stopping(self, reason: str | None) -> bool:
        """The end was asked for and the owner knows; True if that is new."""
        self.is_reported = True
        self.stop_reason = self.stop_reason or reason
        is_new = self.status == "running"
        if is_new:
            self.status = "stopping"
        return is_new

    def finish(self, outcome: TaskOutcome, now_ms: int) -> None:
        """It has ended so."""
        self.finished_at = now_ms
        match outcome:
            case Completed(output=output, detail=detail):
                self.status, self.output, self.detail = "completed", output, detail
            case Killed(detail=detail):
                self.status, self.detail = "killed", detail or self.stop_reason
            case Failed(detail=detail):
                self.status, self.detail = "failed", detail
            case _:
                assert_never(outcome)

    def release(self) -> None:
        """Whoever waits has the snapshot of this moment, and the owner counts as told."""
        waiting = [waiter for waiter in self.waiters if not waiter.done()]
        self.waiters.clear()
        if waiting:
            self.is_reported = True
        for waiter in waiting:
            waiter.set_result(self.snapshot())

    def read(self) -> str:
        """What is new of a stream; else the final output, if there is one."""
        return self.hooks.read_output() if self.hooks.read_output is not None else self.output or ""

    def snapshot(self) -> TaskSnapshot:
        """The task as it is now."""
        return TaskSnapshot(
            id=self.id,
            kind=self.kind,
            label=self.label,
            status=self.status,
            detail=self.detail,
            output=self.output,
            output_limit=self.output_limit,
            owner=None if self._owner is None else self._owner.id,
            started_at=self.started_at,
            finished_at=self.finished_at,
            is_reported=self.is_reported,
        )


class Bucket:
    """The tasks of one exact owner, oldest first, and the numbers it has used."""

    __slots__ = ("entries", "numbers", "owner")

    def __init__(self, owner: Agent | None) -> None:
        self.owner = owner
        self.entries: dict[str, Entry] = {}
        self.numbers: dict[str, int] = {} if owner is None else highest_numbers(owner.session.events)

    @property
    def live(self) -> int:
        """How many have not ended."""
        return sum(not entry.is_terminal for entry in self.entries.values())

    def add(self, entry: Entry, number: int) -> None:
        """The task is registered under its id."""
        self.entries[entry.id] = entry
        self.numbers[entry.kind] = number
