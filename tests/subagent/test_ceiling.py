"""A child never has more than anybody above it has now: at its next call, on every path, also after a resume."""

from __future__ import annotations

from retinue.compose.post import post_message
from retinue.host.host import Host
from retinue.plugins.permissions import PERMISSIONS, Permissions
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext
from tests.support.delegation import children, delegating, quiet
from tests.support.stores import OpenStore


def permissions(host: Host) -> Permissions:
    return host.require(PERMISSIONS, needed_by="a test")


def looks(host: list[Host]) -> Tool:
    @tool
    async def look(ctx: ToolContext) -> str:
        """Say what the caller may do."""
        assert ctx.caller is not None
        return f"I have {permissions(host[0]).preset(ctx.caller.id)}."

    return look


async def test_a_parent_that_is_tightened_tightens_its_running_descendants(store: SessionStore) -> None:
    gate, model, hosts = Gate(), ScriptedModel(), list[Host]()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", calls(call("subagent", description="G", prompt="P")), text("started"), text("noted"))
    model.script("G", calls(call("look")), hold(gate, calls(call("look"))), text("done"))
    async with delegating(model, store, tools=[looks(hosts)]) as host:
        hosts.append(host)
        root = await start_agent(host)
        await permissions(host).switch(root, "full-access").wait()
        await root.follow_up("go")
        await gate.wait_reached()
        permissions(host).switch(root, "read-only")
        gate.open()
        await quiet(host, root)
    seen = model.requests("G")[2]
    assert seen.results == ("I have full-access.", "I have read-only.")
    assert "`read-only`" in seen.users[-1]


async def test_loosening_the_parent_gives_a_child_no_more_than_it_was_given(store: SessionStore) -> None:
    model, hosts = ScriptedModel(), list[Host]()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    gate = Gate()
    model.script("C", hold(gate, calls(call("look"))), text("done"))
    async with delegating(model, store, tools=[looks(hosts)]) as host:
        hosts.append(host)
        root = await start_agent(host)
        permissions(host).switch(root, "read-only")
        await root.follow_up("go")
        await gate.wait_reached()
        permissions(host).switch(root, "full-access")
        gate.open()
        await quiet(host, root)
    assert model.requests("C")[1].results == ("I have read-only.",)


async def test_a_tightening_reaches_a_child_that_comes_back_cold(open_store: OpenStore) -> None:
    """Its own log gives it full access, and so does its parent's, which is away; its grandparent has less by now."""
    clock = FakeClock()
    first = ScriptedModel()
    first.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    first.script("C", calls(call("subagent", description="G", prompt="P")), text("started"), text("noted"))
    first.script("G", text("waiting"))
    store = open_store(clock)
    async with delegating(first, store) as host:
        root = await start_agent(host)
        permissions(host).switch(root, "full-access")
        await root.follow_up("go")
        await quiet(host, root)
        await permissions(host).switch(root, "read-only").wait()
        (child,) = await children(host, root.id)
        (grandchild,) = await children(host, child)
    second, hosts = ScriptedModel(), list[Host]()
    second.script("G", calls(call("look")), text("looked"))
    second.script("C", optional(text("noted")))
    second.script(root.id, optional(text("noted")))
    async with delegating(second, open_store(clock), tools=[looks(hosts)]) as host:
        hosts.append(host)
        await post_message(host.sessions, grandchild, "Look.")
        root = await resume_agent(host, root.id)
        await host.require(CONTINUATIONS, needed_by="a test").recover(root)
        await quiet(host, root)
    assert second.requests("G")[1].results[-1] == "I have read-only."
