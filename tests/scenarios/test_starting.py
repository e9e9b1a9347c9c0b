"""Starting a continuable child: what acceptance is, and what is left when it does not come to that. Scenario C25."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.signals import AgentCreated
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.errors import (
    ActivationClosing,
    DepthExceeded,
    Draining,
    DuplicateChild,
    NoProvider,
    RetinueError,
    StoreFailure,
    Unauthorized,
    UnsupportedCapability,
)
from retinue.session.events import Descriptor, Event
from retinue.subagent.provider import PROVIDERS, Capabilities, RunRequest
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.testing.clock import FakeClock
from retinue.testing.faults import appends
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    children,
    continuations,
    left_nothing,
    listener,
    live,
    log,
    notices,
    quiet,
    rows,
    settled,
    start,
    stock,
    ticks,
    types,
)
from tests.scenarios.stores import WatchedStore


class SlowProvider(SpawnProvider):
    """Prepares children behind a gate. Cancelled, it cleans up behind another one."""

    name = "slow"

    def __init__(self, app: App, gate: Gate, cleanup: Gate) -> None:
        super().__init__(app.host.agents)
        self.gate, self.cleanup = gate, cleanup
        self.has_cleaned_up = False

    async def prepare(self, request: RunRequest) -> Sequence[Event]:
        try:
            await self.gate.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.cleanup.wait()
            self.has_cleaned_up = True
            raise
        return ()


def request(parent: Agent, **more: object) -> RunRequest:
    from retinue.model.content import Text

    return RunRequest(parent=parent, prompt=(Text("P"),), label="C", **more)  # type: ignore[arg-type]


async def test_c25_a_drain_cancels_a_start_that_is_being_prepared_and_waits_for_its_clean_up(tmp_path: Path) -> None:
    model, gate, cleanup = ScriptedModel(), Gate(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("then not"))
    setting = "plugins.subagent.provider=slow"
    async with stock(model, tmp_path, *CONTINUABLE, setting) as app:
        lifecycle, provider = Lifecycle(app), SlowProvider(app, gate, cleanup)
        with app.host.require(PROVIDERS, needed_by="a test").add(provider):
            agent = await app.agent(label="R")
            await agent.follow_up("go").wait()
            await gate.wait_reached()
            drained = False

            async def drain() -> None:
                nonlocal drained
                await continuations(app).drain_below(agent)
                drained = True

            async with anyio.create_task_group() as group:
                group.start_soon(drain)
                await cleanup.wait_reached()
                await ticks()
                assert not drained
                cleanup.open()
            assert provider.has_cleaned_up
            await agent.wait_idle()
            assert "being drained" in model.requests("R")[-1].results[-1]
            errors = [e.data.error for e in await log(app, agent.id) if e.type == "tool/result"]  # type: ignore[union-attr]
            assert [error.code for error in errors if error] == ["DRAINING"]
            await left_nothing(app, agent, lifecycle)
            await app.close(agent)
            await left_nothing(app, agent, lifecycle)


async def test_c25_disposing_the_parent_cancels_a_start_and_waits_for_its_clean_up(tmp_path: Path) -> None:
    model, gate, cleanup = ScriptedModel(), Gate(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")))
    async with stock(model, tmp_path, *CONTINUABLE, "plugins.subagent.provider=slow") as app:
        lifecycle, provider = Lifecycle(app), SlowProvider(app, gate, cleanup)
        with app.host.require(PROVIDERS, needed_by="a test").add(provider):
            agent = await app.agent(label="R")
            await agent.follow_up("go").wait()
            await gate.wait_reached()
            cleanup.open()
            await app.close(agent)
            assert provider.has_cleaned_up
            await left_nothing(app, agent, lifecycle)


async def test_c25_an_abort_at_publication_leaves_nothing_and_the_reserved_id_can_be_used_again(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("answer"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        with anyio.CancelScope() as scope, app.host.bus.on(AgentCreated, lambda _: scope.cancel()):
            await start(app, agent, child_id=SessionId("reserved"))
        assert scope.cancelled_caught
        await left_nothing(app, agent, lifecycle)
        assert await start(app, agent, child_id=SessionId("reserved")) == "reserved"
        await quiet(app, agent)
        assert len(await notices(app, agent.id)) == 1


async def test_an_aborted_call_whose_child_was_not_accepted_names_no_id(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        with app.host.bus.on(AgentCreated, lambda _: agent.cancel(Cause("user"), keep_mailbox=True)):
            await agent.follow_up("go").wait()
            await agent.wait_idle()
        result = next(event.data for event in await log(app, agent.id) if event.type == "tool/result")
        assert "agent-" not in str(result.message)  # type: ignore[union-attr]
        await left_nothing(app, agent, lifecycle)


async def test_an_abort_after_acceptance_changes_nothing_and_the_result_shows_the_id(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("noted"))
    model.script("C", hold(gate, text("answer")))
    clock = FakeClock()
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        commit = Gate()
        store.hold(appends("subagent/descriptor"), commit)
        await agent.follow_up("go").wait()
        await commit.wait_reached()
        agent.cancel(Cause("user"), keep_mailbox=True)
        await ticks()
        commit.open()
        await gate.wait_reached()
        (child,) = await children(app, agent.id)
        await agent.wait_idle()
        result = next(event.data for event in await log(app, agent.id) if event.type == "tool/result")
        assert child in str(result.message)  # type: ignore[union-attr]
        gate.open()
        await quiet(app, agent)
        assert len(await notices(app, agent.id)) == 1


async def test_a_creation_that_the_store_refuses_leaves_nothing_and_the_same_call_may_be_made_again(
    tmp_path: Path,
) -> None:
    model, clock = ScriptedModel(), FakeClock()
    listener(model)
    model.script("C", text("answer"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        store.refuse(appends("subagent/descriptor"))
        with pytest.raises(StoreFailure):
            await start(app, agent, child_id=SessionId("reserved"))
        await left_nothing(app, agent, lifecycle)
        await start(app, agent, child_id=SessionId("reserved"))
        await quiet(app, agent)
        assert [what for what, _ in lifecycle.seen] == ["start", "end"]


async def test_starts_that_cannot_be_are_refused_before_anything_exists(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", hold(gate, text("answer")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        stranger = Agent(app.host.environment, agent.session, agent.options)
        agent.session.driver = agent
        providers = app.host.require(PROVIDERS, needed_by="a test")

        class OneShot:
            name = "one-shot"
            capabilities = Capabilities()
            start = None

        async def refused(error: type[RetinueError], provider: str = "spawn", **more: object) -> None:
            given = request(more.pop("parent", agent), **more)  # type: ignore[arg-type]
            with pytest.raises(error):
                await continuations(app).start(provider, given)

        with providers.add(OneShot()):  # type: ignore[arg-type]
            await refused(NoProvider, "nobody")
            await refused(UnsupportedCapability, "one-shot")
        await refused(Unauthorized, parent=stranger)
        await refused(DepthExceeded, max_depth=0)
        assert await children(app, agent.id) == []
        child = await start(app, agent, child_id=SessionId("taken"))
        await refused(DuplicateChild, child_id=SessionId("taken"))
        await refused(DuplicateChild, child_id=agent.id)
        await refused(DuplicateChild, child_id=SessionId("taken"), max_depth=0)
        await refused(DepthExceeded, child_id=SessionId("free"), max_depth=0)
        gate.open()
        await settled(app, child)
        await refused(DuplicateChild, child_id=SessionId("taken"))
        agent.close_admission()
        await refused(ActivationClosing)


async def test_a_parent_that_is_replaced_while_its_child_is_built_gets_no_child(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")

        async def slow(child: Agent, made: Descriptor) -> Callable[[], None]:
            await gate.wait()
            return lambda: None

        continuations(app).contribute(slow)

        async def refused() -> None:
            with pytest.raises((Draining, Unauthorized)):
                await start(app, agent)

        async with anyio.create_task_group() as group:
            group.start_soon(refused)
            await gate.wait_reached()
            group.start_soon(app.close, agent)
            await ticks()
            gate.open()
        await left_nothing(app, agent, lifecycle)


async def test_siblings_start_side_by_side_and_one_that_fails_disturbs_no_other(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("answer"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        slow = SlowProvider(app, gate, Gate())
        slow.cleanup.open()
        child = None
        with app.host.require(PROVIDERS, needed_by="a test").add(slow):
            async with anyio.create_task_group() as group:
                group.start_soon(continuations(app).start, "slow", request(agent))
                await gate.wait_reached()
                child = await start(app, agent)
                await settled(app, child)
                group.cancel_scope.cancel()
        await quiet(app, agent)
        assert await children(app, agent.id) == [child]


async def test_the_log_of_a_child_begins_with_what_it_is_and_its_prompt_is_the_users(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("answer"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        outline = types(await log(app, child))
        assert outline[:2] == ["subagent/descriptor", "subagent/activation"]
        assert outline.index("turn/start") > outline.index("sandbox/mode" if "sandbox/mode" in outline else outline[0])
        (prompt,) = await rows(app, child)
        assert (prompt.delivery.message.source.kind, prompt.delivery.target) == ("user", "next-turn")
        assert lifecycle.runs[0][1] == lifecycle.runs[1][1]
        assert lifecycle.seen == [("start", child), ("end", child)]
        assert not any(event.type.startswith("task/") for event in await log(app, agent.id))


async def test_a_child_is_in_the_registry_when_its_start_is_told(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("answer"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        from retinue.subagent.lifecycle import SubagentStarted

        agent = await app.agent(label="R")
        found: list[bool] = []
        agent.bus.on(SubagentStarted, lambda event: found.append(app.host.agents.get(event.id) is live(app, event.id)))
        await start(app, agent)
        await quiet(app, agent)
        assert found == [True]


async def test_a_prompt_that_cannot_be_stored_starts_nobody(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        with pytest.raises(RetinueError):
            await start(app, agent, prompt="half a character: \ud83d")
        await left_nothing(app, agent, lifecycle)


@pytest.mark.parametrize("empty", ["description", "prompt"])
@pytest.mark.parametrize("run_in_background", [True, False])
@pytest.mark.parametrize("mode", ["continuable", "one-shot"])
async def test_a_call_without_a_name_or_a_task_is_refused_and_starts_nobody(
    mode: str, run_in_background: bool, empty: str, tmp_path: Path
) -> None:
    model = ScriptedModel()
    arguments = {"description": "C", "prompt": "P", "run_in_background": run_in_background, empty: " \n"}
    model.script("R", calls(call("subagent", **arguments)), text("I see"))
    async with stock(model, tmp_path, *CONTINUABLE, f"plugins.subagent.background_mode={mode}") as app:
        agent, lifecycle = await app.agent(label="R"), Lifecycle(app)
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        (result,) = model.requests("R")[1].results
        assert result.startswith(f"Error: {empty}: ")
        await left_nothing(app, agent, lifecycle)
