"""Everything outside of a scenario: the model, the store, time and users, all of it driven by one schedule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from retinue.errors import RetinueError
from retinue.session.store import SessionStore
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.schedules.schedule import Schedule
from retinue.testing.schedules.store import Names, ScheduledStore
from retinue.tools.function import tool
from retinue.tools.tool import Tool

__all__ = ["Scenario", "ScheduleClock", "World"]

Act: TypeAlias = Callable[[], Awaitable[object] | None]

Scenario: TypeAlias = "Callable[[World], Awaitable[None]]"
"""Builds hosts from what the world gives, uses them, waits until all is at rest, and closes them."""


class ScheduleClock:
    """A Clock that shows the schedule's time, which passes when nothing else can happen."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now_ms(self) -> int:
        """See Clock."""
        return 1_700_000_000_000 + round(self._schedule.now_s * 1000)

    def elapsed_s(self) -> float:
        """See Clock. 0 at first."""
        return self._schedule.now_s

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        await anyio.sleep(seconds)


class World:
    """What a scenario is given. Made by `explore_schedules`, once for each seed."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.clock = ScheduleClock(schedule)
        self.home = MemoryHome()
        """What is stored: it outlives every store of the scenario."""
        self.model = ScriptedModel(pace=self._pace)
        """Each chunk of a reply waits for its turn."""
        self._names = Names()
        self._users: TaskGroup | None = None
        self._acting = 0
        self._acted = anyio.Event()

    async def play(self, scenario: Scenario) -> None:
        """The scenario has run in this world; what should have happened `meanwhile` and has not is called off."""
        async with anyio.create_task_group() as self._users:
            await scenario(self)
            self._users.cancel_scope.cancel()

    def store(self, *, refusals: int = 0) -> SessionStore:
        """A store of this world, for one host after the other; at most `refusals` of its batches are refused."""
        return ScheduledStore(MemoryStore(self.clock, self.home), self.schedule, self._names, refusals=refusals)

    def look(self) -> SessionStore:
        """A store of this world that answers at once, for checks after the hosts have closed."""
        return MemoryStore(self.clock, self.home)

    async def pause(self, who: str, what: str) -> None:
        """It was this one's turn: for tools and whatever else of the scenario waits for something outside."""
        await self.schedule.pause(who, what)

    async def moment(self, who: str, what: str) -> None:
        """Some moment from now on has come, early or late: for what a user does."""
        await self.schedule.pause(who, what, is_any_time=True)

    def meanwhile(self, who: str, what: str, act: Act) -> None:
        """`act` happens at some moment from now on. What is refused with an error of Retinue's has happened too."""
        assert self._users is not None, "only a scenario that is being played can let something happen"
        self._acting += 1
        self._users.start_soon(self._act, who, what, act)

    async def _act(self, who: str, what: str, act: Act) -> None:
        try:
            await self.moment(who, what)
            waiting = act()
            if waiting is not None:
                await waiting
        except RetinueError as error:
            self.schedule.trace.append(f"{who}: {what}: {error.code}")
        finally:
            self._acting -= 1
            if not self._acting:
                self._acted.set()
                self._acted = anyio.Event()

    @property
    def is_acting(self) -> bool:
        """Something that was to happen `meanwhile` has not happened yet."""
        return self._acting > 0

    async def wait_acted(self) -> None:
        """Everything that was to happen `meanwhile` has happened, or was refused."""
        while self.is_acting:
            await self._acted.wait()

    def tool(self, name: str = "work") -> Tool:
        """A tool that may overlap others, whose body waits for its turn; it answers with its argument `words`."""

        async def work(words: str) -> str:
            """Do some work."""
            await self.pause(name, words)
            return words

        return tool(name=name, safe=True)(work)

    async def _pace(self, seen: SeenRequest) -> None:
        await self.pause(f"model of {seen.label or self._names.of(seen.session_id)}", f"request {seen.number}")
