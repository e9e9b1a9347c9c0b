"""A writer on a store that does what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio
import anyio.lowlevel

from retinue.base.ids import MessageId, SessionId
from retinue.errors import IdConflict
from retinue.session.rows import Batch, Claim, Committed
from retinue.session.store import Outcome, SessionStore, StoreBusy
from retinue.session.writer import Durability, Writer
from retinue.testing.clock import FakeClock


def batch(number: int) -> Batch:
    return Batch((Claim(SessionId("s"), (MessageId(str(number)),), number),))


def number(batch: Batch) -> int:
    (op,) = batch.ops
    assert isinstance(op, Claim)
    return op.turn


class ScriptedStore:
    """Answers when it is told to, and remembers what it was given."""

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.groups: list[list[int]] = []
        self.busy = 0
        self.broken = 0
        self.refused: set[int] = set()
        self.waiting: list[Callable[[], None]] = []
        self.syncs: list[Callable[[Exception | None], None]] = []
        self.sync_fails: Exception | None = None

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        if self.busy:
            self.busy -= 1
            raise StoreBusy("process 7")
        if self.broken:
            self.broken -= 1
            raise OSError("no disk")
        numbers = [number(batch) for batch in batches]
        self.groups.append(numbers)
        outcomes = [IdConflict(f"batch {n}") if n in self.refused else Committed() for n in numbers]
        if self.late:
            self.waiting.append(lambda: done(outcomes))
        else:
            done(outcomes)

    def answer(self) -> None:
        self.waiting.pop(0)()

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        if self.sync_fails is not None:
            raise self.sync_fails
        self.syncs.append(done)


class Desk:
    """A writer on a scripted store, and the outcomes of what was submitted."""

    def __init__(self, *, late: bool = False, durability: Durability = "process", clock: Any = None) -> None:
        self.store = ScriptedStore(late=late)
        self.writer = Writer(cast("SessionStore", self.store), clock or FakeClock(), durability)
        self.outcomes: list[tuple[int, Outcome]] = []

    def submit(self, *numbers: int) -> None:
        for n in numbers:
            self.writer.submit(batch(n), lambda outcome, n=n: self.outcomes.append((n, outcome)))

    @property
    def done(self) -> list[int]:
        return [n for n, _ in self.outcomes]


async def turns(count: int = 5) -> None:
    """The loop ran so many turns; whoever could go on has."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
