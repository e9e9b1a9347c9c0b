"""Restriction takes schema and guidance away together, never the child's own tools, and reaches further down: C34."""

import pytest

from retinue.errors import NotFound
from retinue.plugins import tasks
from retinue.plugins.subagent import InstanceConfig, SubagentConfig, ToolFilterConfig
from retinue.session.events import ToolFilter
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, optional, text
from tests.support.delegation import children, delegating, providers, quiet, request
from tests.support.tools import echo


def helper(**more: object) -> SubagentConfig:
    made = InstanceConfig(tool_name="helper", background_mode="continuable", **more)  # type: ignore[arg-type]
    return SubagentConfig(background_mode="continuable", instances=(made,))


async def test_c34_a_restricted_child_has_neither_the_tools_nor_their_guidance_but_its_own(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script(
        "R",
        calls(call("subagent", description="free", prompt="P"), call("helper", description="bound", prompt="P")),
        text("started"),
        text("noted"),
        optional(text("noted")),
    )
    model.script("free", text("done"))
    model.script("bound", calls(call("subagent", description="X", prompt="P")), text("could not"))
    config = helper(tool_filter=ToolFilterConfig(allow=("echo",)))
    async with delegating(model, store, config, tools=[echo]) as host, tasks.plugin(host, tasks.TasksConfig()):
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        for child in await children(host, agent.id):
            assert await children(host, child) == []
        headers = [event for event in agent.session.events if event.type == "request/header"]
        assert len(headers) == 1
    free, bound = model.requests("free")[0], model.requests("bound")[0]
    root = model.requests("R")[0]
    assert set(bound.tool_names) == {"echo", "report"}
    assert "`report`" in bound.system
    for guidance in ("`subagent`", "`helper`", "task_output"):
        assert guidance not in bound.system
        assert guidance in free.system
    assert {"subagent", "helper", "report"} <= set(free.tool_names)
    assert "there is no tool 'subagent'" in model.requests("bound")[1].results[0]
    assert "`report`" not in root.system
    assert "report" not in root.tool_names


async def test_a_grandchild_never_sees_what_is_hidden_from_its_parent(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("helper", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", calls(call("subagent", description="G", prompt="P")), text("started"), text("noted"))
    model.script("G", text("done"))
    config = helper(tool_filter=ToolFilterConfig(deny=("echo",)), persona="You help.")
    async with delegating(model, store, config, tools=[echo]) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
    seen = model.requests("G")[0]
    assert "echo" not in seen.tool_names
    assert "subagent" in seen.tool_names
    assert seen.system.startswith("You help.")


@pytest.mark.parametrize(
    ("outer", "inner", "visible"),
    [
        (ToolFilter(allow=("echo", "subagent")), ToolFilter(allow=("echo", "helper")), {"echo"}),
        (ToolFilter(allow=("echo", "subagent")), ToolFilter(deny=("echo",)), {"subagent"}),
        (ToolFilter(deny=("echo",)), ToolFilter(allow=("echo", "helper")), {"helper"}),
        (ToolFilter(deny=("echo",)), ToolFilter(allow=()), set[str]()),
    ],
)
async def test_restrictions_intersect(
    store: SessionStore, outer: ToolFilter, inner: ToolFilter, visible: set[str]
) -> None:
    model = ScriptedModel()
    model.script("C", text("done"))
    model.script("G", text("done"))
    async with delegating(model, store, helper(), tools=[echo]) as host:
        agent = await start_agent(host)
        child = await providers(host).start("spawn", request(agent, "C", tool_filter=outer))
        await child.result()
        assert child.agent is not None
        grandchild = await providers(host).start("spawn", request(child.agent, "G", tool_filter=inner))
        await grandchild.result()
        await grandchild.dispose()
        await child.dispose()
    assert set(model.requests("G")[0].tool_names) == visible


@pytest.mark.parametrize("provider", ["spawn", "fork"])
async def test_a_filter_that_names_an_unknown_tool_fails_the_start_and_leaves_nothing(
    store: SessionStore, provider: str
) -> None:
    async with delegating(ScriptedModel(), store) as host:
        agent = await start_agent(host)
        before = agent.session.next_seq
        wrong = request(agent, "C", tool_filter=ToolFilter(allow=("ecco",)))
        with pytest.raises(NotFound, match="ecco"):
            await providers(host).start(provider, wrong)
        with pytest.raises(NotFound, match="ecco"):
            await host.require(CONTINUATIONS, needed_by="a test").start(provider, wrong)
        assert await children(host, agent.id) == []
        assert host.agents.list() == (agent,)
        assert agent.session.next_seq == before


async def test_the_model_is_told_of_a_start_that_failed(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("helper", description="C", prompt="P")), text("alone then"))
    async with delegating(model, store, helper(tool_filter=ToolFilterConfig(deny=("ecco",)))) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        assert await children(host, agent.id) == []
    assert "ecco" in model.requests("R")[1].results[0]
