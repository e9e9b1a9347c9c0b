"""What could complete next, and which of it does: decided by a seed, one decision after the other.

A schedule knows no store and no model. Whoever waits for the outside world waits here instead, under a name; the loop
says when nothing more happens by itself, and then one of those who wait goes on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import anyio

__all__ = ["Completion", "Schedule", "Stuck"]

_LATE_S = 1.0
"""No timer goes off while something waits for longer than this: deadlines are for what hangs, not for what is slow."""
_ENDLESS_S = 3600.0
"""After so long with nothing but timers, nothing else will come."""
_MAX_DECISIONS = 20_000
_MAX_ROUNDS = 200_000
"""Rounds of the loop between two rests."""


class Stuck(Exception):
    """Nothing can happen any more, or never ends to happen, and cancelling has not helped."""


@dataclass(slots=True, eq=False)
class Completion:
    """Something that can happen next."""

    who: str
    what: str
    release: Callable[[], None]
    number: int
    """In order of arrival."""
    since_s: float
    weight: float
    """How likely it is to be chosen, beside the others."""

    def __str__(self) -> str:
        return f"{self.who}: {self.what}"


class Schedule:
    """One order of events. The same seed over the same scenario gives the same one.

    Seeds differ in more than their choices: some let things complete only when the loop has come to rest, others also
    in the middle; some treat everybody alike, others let a few wait for long; some let time pass meanwhile.
    """

    def __init__(self, seed: int, *, decisions: int | None = None) -> None:
        """After so many `decisions` whoever came first goes first; None = the seed decides to the end."""
        self.seed = seed
        self.trace: list[str] = []
        """Every decision so far."""
        self.on_stuck: Callable[[], None] = lambda: None
        """Called when nothing can happen any more; it ends the scenario."""
        self.why_stuck: str | None = None
        self._limit = decisions
        self._random = random.Random(seed)
        self._haste = self._random.choice((0.0, 0.0, 0.01, 0.1))
        self._is_uneven = self._random.random() < 0.5
        self._is_slow = self._random.random() < 0.25
        self._pending: list[Completion] = []
        self._count = 0
        self._now_s = 0.0
        self._alone_s = 0.0
        self._rounds = 0

    @property
    def now_s(self) -> float:
        """Seconds that have passed for the scenario."""
        return self._now_s

    @property
    def pending(self) -> tuple[Completion, ...]:
        """What could complete now, in the order in which it came."""
        return tuple(self._pending)

    # For those who wait

    def defer(self, who: str, what: str, release: Callable[[], None], *, is_any_time: bool = False) -> Completion:
        """`release` will be called from the loop when it is this one's turn, unless it is withdrawn before.

        Something that may come at any time comes later in some schedules than all that others do meanwhile.
        """
        self._count += 1
        weight = self._weight(who) if self._is_uneven else 1.0
        if is_any_time:
            weight *= self._weight(f"{who} {what}", least=-4)
        completion = Completion(who, what, release, self._count, self._now_s, weight)
        self._pending.append(completion)
        return completion

    def withdraw(self, completion: Completion) -> None:
        """It does not complete any more; nothing happens if it has."""
        if completion in self._pending:
            self._pending.remove(completion)

    async def pause(self, who: str, what: str, *, is_any_time: bool = False) -> None:
        """It was this one's turn; see `defer`. Cancelling ends the wait."""
        released = anyio.Event()
        completion = self.defer(who, what, released.set, is_any_time=is_any_time)
        try:
            await released.wait()
        finally:
            self.withdraw(completion)

    def chance(self, probability: float) -> bool:
        """The seed says yes, which it does so often. No once the decisions are used up."""
        return self._decides and self._random.random() < probability

    @property
    def _decides(self) -> bool:
        return self._limit is None or len(self.trace) < self._limit

    # For the loop

    def busy(self) -> None:
        """The loop goes round and has work. A hasty seed lets something complete in the middle of it."""
        self._rounds += 1
        if self._rounds > _MAX_ROUNDS:
            raise Stuck("the loop never came to rest")
        if self._haste and self._pending and self.chance(self._haste):
            self._take(self._choose())

    def rest(self, timer_s: float | None) -> None:
        """Nothing happens by itself before the next timer, `timer_s` from now; None = never. So something completes."""
        self._rounds = 0
        if len(self.trace) >= _MAX_DECISIONS:
            self._stuck(f"it has not ended after {_MAX_DECISIONS} decisions")
        elif self._pending:
            self._alone_s = 0.0
            if timer_s is not None and self._passes(timer_s):
                self._pass(timer_s)
            elif self._decides:
                self._take(self._choose())
            else:
                self._take(self._pending[0])
        elif timer_s is None or self._alone_s > _ENDLESS_S:
            self._stuck("nothing can happen any more")
        else:
            self._alone_s += timer_s
            self._pass(timer_s)

    def _passes(self, timer_s: float) -> bool:
        oldest = min(completion.since_s for completion in self._pending)
        return self._is_slow and self._now_s + timer_s <= oldest + _LATE_S and self.chance(0.1)

    def _pass(self, timer_s: float) -> None:
        self._now_s += timer_s
        if self._pending:
            self.trace.append(f"time: {timer_s:g} s pass")

    def _sorted(self) -> list[Completion]:
        """By name, so that a choice does not depend on what came first within one round."""
        return sorted(self._pending, key=lambda one: (one.who, one.what, one.number))

    def _choose(self) -> Completion:
        among = self._sorted()
        return self._random.choices(among, [one.weight for one in among])[0]

    def _weight(self, of: str, least: float = -2) -> float:
        return 10 ** random.Random(f"{self.seed} {of}").uniform(least, 0)

    def _take(self, completion: Completion) -> None:
        self._pending.remove(completion)
        self.trace.append(str(completion))
        asyncio.get_running_loop().call_soon(completion.release)

    def _stuck(self, why: str) -> None:
        if self.why_stuck is not None:
            raise Stuck(why)
        self.why_stuck = why
        self._alone_s = 0.0
        self.on_stuck()
