"""What a child may do: its parent's explicit permission at the instant of the start, and never more than that."""

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import ConfigError, Unauthorized
from retinue.host.host import Host
from retinue.model.content import UserMessage, text_of
from retinue.plugins.permissions import PERMISSIONS, Permissions, Preset
from retinue.session.events import SandboxMode
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.support.delegation import children, delegating, log, providers, quiet, request
from tests.support.stores import OpenStore


def permissions(host: Host) -> Permissions:
    return host.require(PERMISSIONS, needed_by="a test")


async def modes(host: Host, id: SessionId) -> list[tuple[str, str]]:
    """The permission events of a log: preset and source."""
    return [(e.data.mode, e.data.source) for e in await log(host, id) if isinstance(e.data, SandboxMode)]


def told(agent: Agent) -> str:
    context = agent.session.history.context
    return "" if context is None else text_of(context.content)


def _model(*child: str) -> ScriptedModel:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", *(text(words) for words in child))
    return model


async def test_a_child_gets_its_parents_explicit_preset_before_it_runs(store: SessionStore) -> None:
    async with delegating(_model("done"), store) as host:
        agent = await start_agent(host)
        await permissions(host).switch(agent, "read-only").wait()
        await agent.follow_up("go")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        assert await modes(host, child) == [("read-only", "delegation")]
        outline = [event.type for event in await log(host, child)]
        assert outline.index("subagent/descriptor") < outline.index("sandbox/mode") < outline.index("turn/start")
        assert await modes(host, agent.id) == [("read-only", "user")]


async def test_the_deployments_default_is_not_copied(store: SessionStore) -> None:
    model = _model("done")
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        assert await modes(host, child) == []
    assert "permission" not in " ".join(model.requests("R")[0].users)


async def test_a_switch_of_the_parent_during_the_start_does_not_reach_the_child(store: SessionStore) -> None:
    gate = Gate()
    async with delegating(_model("done"), store) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "read-only")

        async def slow(_: Agent) -> None:
            await gate.wait()

        host.agents.on_setup(slow)
        agent.follow_up("go")
        await gate.wait_reached()
        permissions(host).switch(agent, "full-access")
        gate.open()
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        assert await modes(host, child) == [("read-only", "delegation")]


async def test_the_capture_of_a_start_without_a_tool_is_of_its_first_instant(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("one", text("1"))
    model.script("two", text("2"))
    model.script("R", text("noted"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "read-only")
        made: list[SessionId] = []

        async def one() -> None:
            run = await providers(host).start("spawn", request(agent, "one"))
            made.append(run.id)
            await run.result()
            await run.dispose()

        async def two() -> None:
            continuations = host.require(CONTINUATIONS, needed_by="a test")
            made.append((await continuations.start("spawn", request(agent, "two"))).child_id)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(two)
            await anyio.lowlevel.checkpoint()
            permissions(host).switch(agent, "full-access")
        await quiet(host, agent)
        assert [await modes(host, id) for id in made] == [[("read-only", "delegation")]] * 2


async def test_a_forks_policy_comes_after_its_seed(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", text("T1"), calls(call("subagent_fork", description="F", prompt="P")), text("ok"))
    model.script("F", text("done"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "workspace-write")
        await agent.follow_up("first")
        await agent.wait_idle()
        permissions(host).switch(agent, "read-only")
        await agent.follow_up("second")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        stored = await store.read(child)
        length = stored.header.seed_length
        assert length is not None
        assert await modes(host, child) == [("workspace-write", "user"), ("read-only", "delegation")]
        own = [event.type for event in stored.events[length:]]
        assert own[:3] == ["session/end-seed", "subagent/descriptor", "sandbox/mode"]
    fork = model.requests("F")[0]
    assert [words for words in fork.users if "`workspace-write`" in words] != []
    assert "`read-only`" in fork.users[-1]


async def test_a_resumed_child_has_what_its_log_says_and_nothing_is_captured_again(
    open_store: OpenStore, clock: FakeClock
) -> None:
    async with delegating(_model("done"), open_store(clock)) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "read-only")
        await agent.follow_up("go")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
    model, gate = ScriptedModel(), Gate()
    model.script(agent.id, calls(call("send_message", subagent_id=child, message="more")), text("sent"), text("noted"))
    model.script(child, hold(gate, text("again")))
    async with delegating(model, open_store(clock)) as host:
        agent = await resume_agent(host, agent.id)
        assert permissions(host).preset(agent.id) == "read-only"
        permissions(host).switch(agent, "full-access")
        await agent.follow_up("more")
        await gate.wait_reached()
        assert permissions(host).preset(child) == "read-only"
        gate.open()
        await quiet(host, agent)
        assert await modes(host, child) == [("read-only", "delegation")]
        assert permissions(host).override(child) is None


async def test_a_later_switch_of_the_child_wins_and_never_widens(open_store: OpenStore, clock: FakeClock) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", hold(gate, text("done")))
    async with delegating(model, open_store(clock)) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "workspace-write")
        await agent.follow_up("go")
        await gate.wait_reached()
        (id,) = await children(host, agent.id)
        child = host.agents.get(id)
        assert child is not None
        with pytest.raises(Unauthorized, match="workspace-write"):
            permissions(host).switch(child, "full-access")
        await permissions(host).switch(child, "read-only").wait()
        assert permissions(host).preset(id) == "read-only"
        permissions(host).switch(child, "workspace-write")
        assert permissions(host).preset(id) == "workspace-write"
        permissions(host).switch(child, "read-only")
        gate.open()
        await quiet(host, agent)
        assert await modes(host, agent.id) == [("workspace-write", "user")]
    async with delegating(ScriptedModel(), open_store(clock)) as host:
        child = await host.agents.resume(id)
        assert permissions(host).preset(id) == "read-only"


async def test_a_grandchild_has_what_its_parent_was_given(store: SessionStore) -> None:
    model = ScriptedModel()
    delegate = calls(call("subagent", description="G", prompt="P", run_in_background=False))
    model.script("R", calls(call("subagent", description="C", prompt="P", run_in_background=False)), text("ok"))
    model.script("C", delegate, text("c done"))
    model.script("G", text("g done"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "read-only")
        await agent.follow_up("go")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        (grandchild,) = await children(host, child)
        assert await modes(host, grandchild) == [("read-only", "delegation")]


# --- what agents are told ---


async def test_children_are_told_their_standing_and_their_preset_and_nobody_else_is(store: SessionStore) -> None:
    model = _model("done")
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        assert told(agent) == ""
        assert [m.source.kind for m in agent.session.history.messages if isinstance(m, UserMessage)] == [
            "user",
            "subagent-settled",
        ]
    prompt, context = model.requests("C")[0].users
    assert prompt == "P"
    assert "rejected" in context
    assert "Do not retry" in context
    assert "permission is" not in context


async def test_an_explicit_preset_is_told_before_the_standing(store: SessionStore) -> None:
    model = _model("done")
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        permissions(host).switch(agent, "read-only")
        await agent.follow_up("go")
        await quiet(host, agent)
        assert "`read-only`" in told(agent)
        assert "rejected" not in told(agent)
    context = model.requests("C")[0].users[1]
    assert context.index("`read-only`") < context.index("rejected")


# --- the log alone ---


async def test_an_unknown_preset_in_a_log_is_the_least_one(store: SessionStore) -> None:
    async with delegating(ScriptedModel(), store) as host:
        agent = await start_agent(host)
        tx = agent.transaction()
        tx.append(agent.session, SandboxMode("newer-preset", "user"))
        tx.submit()
        assert permissions(host).preset(agent.id) == "read-only"
        with pytest.raises(ConfigError):
            permissions(host).switch(agent, "everything")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], None),
        ([("read-only", "delegation")], "read-only"),
        ([("full-access", "user")], "full-access"),
        ([("workspace-write", "delegation"), ("read-only", "user")], "read-only"),
        ([("workspace-write", "delegation"), ("full-access", "user")], "workspace-write"),
        ([("read-only", "delegation"), ("workspace-write", "delegation")], "workspace-write"),
    ],
)
async def test_the_newest_preset_of_a_log_holds_up_to_what_was_given(
    store: SessionStore, events: list[tuple[str, str]], expected: Preset | None
) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        tx = agent.transaction()
        tx.append(agent.session, *(SandboxMode(mode, source) for mode, source in events))
        tx.submit()
        found = Permissions("workspace-write")
        found.enter(agent.session)
        assert found.override(agent.id) == expected
        found.forget(agent.id)
        assert found.override(agent.id) is None
