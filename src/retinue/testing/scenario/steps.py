"""Performs the steps of a scenario, one after the other, and says which could not be performed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

import anyio
from anyio.abc import TaskGroup

from retinue.agent.agent import Agent
from retinue.compose.app import App
from retinue.errors import AgentBusy, NotFound, RetinueError
from retinue.model.client import ModelClient
from retinue.plugins.permissions import PERMISSIONS
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.clock import FakeClock
from retinue.testing.scenario.form import ROOT, StepForm, WaitForm, verb_of
from retinue.testing.scenario.front_end import FrontEnd
from retinue.testing.scenario.person import Person
from retinue.testing.scenario.stage import Stage
from retinue.testing.scenario.witness import ROOT_ID

__all__ = ["PATIENCE_S", "Performer"]

PATIENCE_S = 20.0
"""Seconds of real time after which a step counts as one that will not happen. Nothing waits for time otherwise."""


class _NothingDone(Exception):
    """There was nothing for the step to do."""


class Performer:
    """Performs one scenario. `problems` says what went wrong; nothing is performed after that."""

    def __init__(
        self,
        stage: Stage,
        front_end: FrontEnd,
        client: Callable[[], ModelClient],
        wait_request: Callable[[int, str], Awaitable[object]],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`client` answers in place of the configured model, asked once a life; `wait_request` waits for the n-th
        request of a session."""
        self._stage = stage
        self._front_end = front_end
        self._client = client
        self._wait_request = wait_request
        self._patience_s = patience_s
        self._maintained: dict[str, anyio.Event] = {}
        self._steps: Sequence[StepForm] = stage.folder.form.steps
        self._at = 0
        answers = stage.folder.form.permission_answers
        is_asked = bool(answers) or any(step.answer is not None for step in self._steps)
        self._person = Person(answers) if is_asked else None
        self.problems: list[str] = []

    async def perform(self) -> None:
        """Every step is performed and everything is at rest and stored, or `problems` says what is not.

        Raises: what opening the composition raises.
        """
        is_over = False
        while not is_over and not self.problems:
            async with self._stage.life(self._client()) as app, anyio.create_task_group() as group:
                with nullcontext() if self._person is None else self._person.here(app):
                    if await self._within("the start", self._front_end.connect(app, group)):
                        is_over = await self._live(app, group)
                    group.cancel_scope.cancel()
        if self._at < len(self._steps):
            rest = enumerate(self._steps[self._at :], self._at + 1)
            self.problems.append(f"not performed: {', '.join(_name(n, step) for n, step in rest)}")
        if self._person is not None:
            self.problems += [*self._person.problems, *filter(None, [self._person.unused])]

    async def _live(self, app: App, group: TaskGroup) -> bool:
        """Steps up to the next restart, or to the end: then the answer is True."""
        for step in self._steps[self._at :]:
            if not await self._within(_name(self._at + 1, step), self._step(step, app, group), fails=step.fails):
                return False
            self._at += 1
            if step.restart is not None:
                self._check_refusals()
                return False
        if await self._within("the end", self._front_end.rest()):
            self._check_refusals()
        return True

    async def _within(self, what: str, work: Awaitable[object], *, fails: str | None = None) -> bool:
        """`work` is done in time, with the error that was expected of it; otherwise it is a problem."""
        problem = f"it was expected to fail with {fails}, and did not" if fails is not None else None
        try:
            with anyio.fail_after(self._patience_s):
                await work
        except TimeoutError:
            problem = f"it did not happen within {self._patience_s:g} s"
        except _NothingDone as nothing:
            problem = str(nothing)
        except RetinueError as error:
            problem = None if error.code == fails else f"it failed: {error.code}: {error}"
        if problem is not None:
            self.problems.append(f"{what}: {problem}")
        return problem is None

    def _check_refusals(self) -> None:
        store = self._stage.store
        if store is not None and store.unspent:
            self.problems.append("not performed: the store was never asked for what it shall refuse")

    async def _step(self, step: StepForm, app: App, group: TaskGroup) -> None:
        front_end, stage = self._front_end, self._stage
        match verb_of(step):
            case "prompt":
                await front_end.send(step.prompt or "", step.mode)
                await front_end.rest()
            case "send":
                await front_end.send(step.send or "", step.mode)
            case "wait":
                await self._wait(step.wait)
            case "cancel":
                await self._cancel(app, step.cancel or ROOT)
            case "disconnect":
                await front_end.disconnect()
            case "open":
                gate = stage.gates[step.open or ""]
                await gate.wait_reached()
                gate.open()
            case "begin_maintenance":
                await self._begin_maintenance(app, group, step.begin_maintenance or ROOT)
            case "end_maintenance":
                self._end_maintenance(step.end_maintenance or ROOT)
            case "restart":
                await app.host.sessions.writer.committed()
                if step.restart == "crash":
                    stage.crash()
            case "refuse":
                assert step.refuse is not None
                await stage.refuse(step.refuse)
            case "permission":
                assert step.permission is not None
                agent = await self._agent(app, ROOT)
                await app.host.require(PERMISSIONS, needed_by="the scenario").switch(agent, step.permission).wait()
            case "answer":
                assert step.answer is not None
                assert self._person is not None
                await self._person.give(await stage.witness.wait_id(step.answer.of), step.answer)
            case "advance":
                await self._advance(step.advance or 0.0)
            case None:
                raise AssertionError("read_scenario lets no such step through")

    async def _wait(self, wait: object) -> None:
        witness = self._stage.witness
        match wait:
            case WaitForm(turn_start=str(label)):
                await witness.wait_event(label, "turn/start", wait.count)
            case WaitForm(turn_end=str(label)):
                await witness.wait_event(label, "turn/end", wait.count)
            case WaitForm(settled=str(label)):
                await witness.wait_event(label, "subagent/settled", wait.count)
            case WaitForm(event=str(type_name)):
                await witness.wait_event(wait.of, type_name, wait.count)
            case WaitForm(request=str(label)):
                await self._wait_request(wait.count, await witness.wait_id(label))
            case WaitForm(gate=str(name)):
                await self._stage.gates[name].wait_reached(wait.count)
            case _:
                await self._front_end.rest()

    async def _cancel(self, app: App, label: str) -> None:
        id = await self._stage.witness.wait_id(label)
        if id == ROOT_ID:
            is_done = self._front_end.cancel()
        else:
            agent = await self._agent(app, label)
            is_done = agent.status == "running"
            app.host.require(CONTINUATIONS, needed_by="the scenario").interrupt(id, None)
        if not is_done:
            raise _NothingDone(f"{label!r} had nothing to cancel")

    async def _begin_maintenance(self, app: App, group: TaskGroup, label: str) -> None:
        agent = await self._agent(app, label)
        await agent.wait_idle()
        begun, ended = anyio.Event(), self._maintained.setdefault(label, anyio.Event())

        async def work() -> None:
            begun.set()
            await ended.wait()

        async def maintain() -> None:
            try:
                await agent.run_maintenance(work)
            except AgentBusy:  # it was cancelled, with what it waits for
                return

        group.start_soon(maintain)
        await begun.wait()

    def _end_maintenance(self, label: str) -> None:
        ended = self._maintained.pop(label, None)
        if ended is None:
            raise _NothingDone(f"{label!r} was in no maintenance")
        ended.set()

    async def _agent(self, app: App, label: str) -> Agent:
        id = await self._stage.witness.wait_id(label)
        agent = app.host.agents.get(id)
        if agent is None:
            raise NotFound(f"no agent of {label!r} is here now")
        return agent

    async def _advance(self, seconds: float) -> None:
        clock = self._stage.clock
        if isinstance(clock, FakeClock):  # while a recording is made, time passes by itself
            await clock.wait_sleeping(seconds)
            await clock.advance(seconds)


def _name(number: int, step: StepForm) -> str:
    return f"step {number} ({verb_of(step)})"
