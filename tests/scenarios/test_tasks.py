"""One-shot children in the background: tasks of their parent. Scenarios C27 and C28, and work that outlives a turn."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.agent.phase import Cause
from retinue.compose.app import App
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import PROVIDERS, Run, RunRequest
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.tasks.record import TaskSettled
from retinue.tasks.runtime import TASKS
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from retinue.tools.function import tool
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    children,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    rows,
    said_to,
    start,
    stock,
    ticks,
)

ONE_SHOT = ("plugins.subagent.background_mode=one-shot",)
SLOW = "plugins.subagent.provider=slow"


class Slow(SpawnProvider):
    """Starts children behind a gate, and cleans up behind another when it is stopped there."""

    name = "slow"

    def __init__(self, app: App, gate: Gate, cleanup: Gate) -> None:
        super().__init__(app.host.agents)
        self.gate, self.cleanup = gate, cleanup
        self.error: Exception | None = None
        self.reason: object = None

    async def start(self, request: RunRequest) -> Run:
        try:
            await self.gate.wait()
        except anyio.get_cancelled_exc_class() as cancelled:
            self.reason = str(cancelled)
            with anyio.CancelScope(shield=True):
                await self.cleanup.wait()
            if self.error is not None:
                raise self.error from cancelled
            raise
        if self.error is not None:
            raise self.error
        return await super().start(request)


def background(label: str) -> object:
    return call("subagent", description=label, prompt="P", run_in_background=True)


@pytest.mark.parametrize("cleanup_fails", [False, True])
async def test_c27_a_task_is_killed_while_its_provider_starts(tmp_path: Path, cleanup_fails: bool) -> None:
    model, gate, cleanup, look = ScriptedModel(), Gate(), Gate(), Gate()
    model.script(
        "R",
        calls(background("C")),  # type: ignore[arg-type]
        hold(look, calls(call("task_kill", task_id="subagent-1", reason="not needed"))),
        calls(call("task_output", task_id="subagent-1")),
        text("ok"),
        calls(call("task_output", task_id="subagent-1")),
        text("seen"),
    )
    async with stock(model, tmp_path, *ONE_SHOT, SLOW) as app:
        provider, lifecycle = Slow(app, gate, cleanup), Lifecycle(app)
        if cleanup_fails:
            provider.error = ValueError("a container is left")
        with app.host.require(PROVIDERS, needed_by="a test").add(provider):
            agent = await app.agent(label="R")
            await agent.follow_up("go").wait()
            await gate.wait_reached()
            look.open()
            await cleanup.wait_reached()
            await agent.wait_idle()
            first, killed, shown = model.requests("R")[3].results
            assert "subagent-1" in first
            assert "[status: stopping" in shown
            assert "not needed" in str(provider.reason)
            assert await children(app, agent.id) == []
            cleanup.open()
            await quiet(app, agent)
            await agent.follow_up("and?").wait()
            await quiet(app, agent)
            final = model.requests("R")[5].results[-1]
            assert ("[status: failed" if cleanup_fails else "[status: killed") in final
            if cleanup_fails:
                assert "not needed" in final
                assert "a container is left" in final
            assert killed
            assert lifecycle.seen == []
            assert len(await rows(app, agent.id)) == 2, "no notice: whoever killed it knows"


async def test_c27_a_start_that_fails_by_itself_is_a_failure_and_one_notice(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(background("C")), text("waiting"), text("I see"))  # type: ignore[arg-type]
    async with stock(model, tmp_path, *ONE_SHOT, SLOW) as app:
        provider = Slow(app, gate, Gate())
        provider.error = ValueError("no room there")
        with app.host.require(PROVIDERS, needed_by="a test").add(provider):
            agent = await app.agent(label="R")
            await agent.follow_up("go").wait()
            await gate.wait_reached()
            gate.open()
            await quiet(app, agent)
            (notice,) = [said for said in said_to(model.requests("R")[-1]) if "subagent-1" in said]
            assert "failed" in notice
            assert "task_output" in notice


class Frail(SpawnProvider):
    """Its runs fail around a child that has ended."""

    name = "frail"

    def __init__(self, app: App, result: bool, dispose: bool) -> None:
        super().__init__(app.host.agents)
        self.fails = result, dispose

    async def start(self, request: RunRequest) -> Run:
        run, (result_fails, dispose_fails) = await super().start(request), self.fails

        class FrailRun:
            id, agent = run.id, run.agent

            async def result(self) -> Outcome:
                outcome = await run.result()
                if result_fails:
                    raise ValueError("the wire broke")
                return outcome

            async def dispose(self) -> None:
                await run.dispose()
                if dispose_fails:
                    raise ValueError("the folder stayed")

        return FrailRun()


@pytest.mark.parametrize(("result", "dispose"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("is_background", [False, True])
async def test_a_run_around_which_something_fails_is_told_as_an_error(
    is_background: bool, result: bool, dispose: bool, tmp_path: Path
) -> None:
    model = ScriptedModel()
    started = calls(call("subagent", description="C", prompt="P", run_in_background=is_background))
    model.script("A", started, text("ok"), optional(text("noted")))
    model.script("C", text("ANSWER"))
    async with stock(model, tmp_path, *ONE_SHOT, "plugins.subagent.provider=frail") as app:
        with app.host.require(PROVIDERS, needed_by="a test").add(Frail(app, result, dispose)):
            agent, lifecycle = await app.agent(label="A"), Lifecycle(app)
            ended: list[str] = []
            app.host.bus.on(TaskSettled, lambda event: ended.append(event.task.status))
            await agent.follow_up("go").wait()
            await quiet(app, agent)
        assert [what for what, _ in lifecycle.seen] == ["start", "end"]
        assert lifecycle.outcomes == ["error" if result or dispose else "completed"]
        assert ended == ([] if not is_background else ["failed" if result or dispose else "completed"])


async def test_c28_only_ends_that_nobody_has_seen_are_told(tmp_path: Path) -> None:
    model, clock = ScriptedModel(), FakeClock()
    gates = {label: Gate(label) for label in ("J1", "J2", "J3", "J4")}
    go, after = Gate(), Gate()
    model.script(
        "R",
        calls(*[background(label) for label in gates]),  # type: ignore[arg-type]
        hold(go, calls(call("task_kill", task_id="subagent-1"))),
        calls(call("task_output", task_id="subagent-2", wait=True, timeout_ms=60_000)),
        calls(call("task_output", task_id="subagent-3", wait=True, timeout_ms=1_000)),
        hold(after, calls(call("task_output", task_id="subagent-2"), call("task_kill", task_id="subagent-2"))),
        text("nothing more to do"),
        text("J4 is done too"),
    )
    for label, gate in gates.items():
        model.script(label, hold(gate, text(f"{label} has ended")))
    async with stock(model, tmp_path, *ONE_SHOT, clock=clock) as app:
        agent = await app.agent(label="R")
        tasks = app.host.require(TASKS, needed_by="a test")
        ended: list[str] = []
        app.host.bus.on(TaskSettled, lambda event: ended.append(event.task.id))
        await agent.follow_up("go").wait()
        for gate in gates.values():
            await gate.wait_reached()
        go.open()
        await clock.wait_sleeping(60)
        gates["J2"].open()
        await clock.wait_sleeping(1)
        await clock.advance(1)
        await after.wait_reached()
        gates["J3"].open()
        while tasks.get("subagent-3", agent.id).status == "running":
            await ticks(1)
        after.open()
        await agent.wait_idle()
        gates["J4"].open()
        await quiet(app, agent)
        told = [row.delivery.message.source.summary for row in await rows(app, agent.id)][1:]
        assert sorted("subagent-3" in str(one) for one in told) == [False, True]
        assert sorted("subagent-4" in str(one) for one in told) == [False, True]
        results = model.requests("R")[5].results
        assert results[5].splitlines()[0] == "J2 has ended"
        assert "[status: running" in results[6]
        assert results[7] == results[5], "the same final text again"
        assert "already" in results[8].lower()
        assert sorted(ended) == ["subagent-1", "subagent-2", "subagent-3", "subagent-4"]


async def test_a_child_settles_only_after_its_own_tasks_and_with_the_late_answer(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    settings = ("plugins.subagent.instances=[{tool_name: job, background_mode: one-shot}]",)
    background_job = call("job", description="J", prompt="Q", run_in_background=True)
    model.script("C", calls(background_job), text("waiting for J"), text("J says 7"))
    model.script("J", hold(gate, text("7")))
    async with stock(model, tmp_path, *CONTINUABLE, *settings) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        await live(app, child).wait_idle()
        await ticks()
        assert await endings(app, child) == []
        assert await notices(app, agent.id) == []
        gate.open()
        await quiet(app, agent)
        (notice,) = await notices(app, agent.id)
        assert "J says 7" in notice
        assert await endings(app, child) == ["completed"]


async def test_aborting_the_call_after_its_task_began_leaves_the_child_alone(tmp_path: Path) -> None:
    model, gate, stuck = ScriptedModel(), Gate(), Gate()

    @tool(safe=True)
    async def wait_here() -> str:
        """Wait."""
        await stuck.wait()
        return "done"

    root = model.script("R", calls(background("C"), call("wait_here")))  # type: ignore[arg-type]
    model.script("C", hold(gate, text("answer")))
    async with stock(model, tmp_path, *ONE_SHOT, tools=[wait_here]) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await gate.wait_reached()
        await stuck.wait_reached()
        agent.cancel(Cause("user"), keep_mailbox=True)
        await agent.wait_idle()
        root.add(text("good"), optional(text("more")))
        gate.open()
        await quiet(app, agent)
        ended = [event for event in await log(app, agent.id) if event.type == "task/ended"]
        assert [event.data.status for event in ended] == ["completed"]  # type: ignore[union-attr]


async def test_disposing_the_parent_ends_its_tasks_with_their_children_and_says_nothing(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(background("C")), text("waiting"))  # type: ignore[arg-type]
    model.script("C", text("so far").hold_after(gate))
    async with stock(model, tmp_path, *ONE_SHOT) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await gate.wait_reached()
        await agent.wait_idle()
        await app.close(agent)
        assert app.host.agents.list() == ()
        assert len(await rows(app, agent.id)) == 1


async def test_without_the_runtime_a_background_call_fails_and_says_what_to_load(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(background("C")), text("then not"))  # type: ignore[arg-type]
    async with stock(model, tmp_path, *ONE_SHOT, "plugins.tasks=null", "plugins.shell=null") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        assert "tasks" in model.requests("R")[1].results[0]
        assert await children(app, agent.id) == []
