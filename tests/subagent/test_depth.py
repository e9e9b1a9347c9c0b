"""How deep delegation may go: C33."""

from contextlib import ExitStack

import pytest

from retinue.errors import BadInput, ConfigError, DepthExceeded
from retinue.model.content import text_of
from retinue.plugins.subagent import InstanceConfig, SubagentConfig
from retinue.session.store import SessionStore
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import Capabilities, Run, RunRequest
from retinue.testing.clock import FakeClock
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.support.delegation import children, delegating, providers, quiet, request
from tests.support.stores import OpenStore

TOO_DEEP = calls(call("subagent", description="D", prompt="too deep"))


def capped(max_depth: int) -> SubagentConfig:
    return SubagentConfig(background_mode="continuable", max_depth=max_depth)


async def test_c33_a_child_at_the_cap_sees_the_tool_and_is_refused_also_after_a_resume(
    open_store: OpenStore, clock: FakeClock
) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="delegate further")), text("ok"), text("noted"))
    model.script("C", TOO_DEEP, text("could not delegate"))
    async with delegating(model, open_store(clock), capped(1)) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        assert await children(host, child) == []
    first, second = model.requests("C")
    assert "subagent" in first.tool_names
    assert "depth 2" in second.results[0]
    assert "maximum is 1" in second.results[0]

    again = ScriptedModel()
    again.script(
        agent.id, calls(call("send_message", subagent_id=child, message="try again")), text("ok"), text("noted")
    )
    again.script(child, TOO_DEEP, text("still not"))
    async with delegating(again, open_store(clock), capped(1)) as host:
        agent = await resume_agent(host, agent.id)
        await agent.follow_up("again")
        await quiet(host, agent)
        assert await children(host, child) == []
        live = await host.agents.resume(child)
        assert live.depth == 1
    assert "depth 2" in again.requests(child)[1].results[-1]


async def test_a_cap_of_0_keeps_a_root_from_delegating(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("alone then"))
    async with delegating(model, store, capped(0)) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        assert await children(host, agent.id) == []
    assert "depth 1" in model.requests("R")[1].results[0]


@pytest.mark.parametrize("provider", ["spawn", "fork"])
async def test_the_cap_is_checked_before_anything_exists(store: SessionStore, provider: str) -> None:
    async with delegating(ScriptedModel(), store) as host:
        agent = await start_agent(host)
        with pytest.raises(DepthExceeded):
            await providers(host).start(provider, request(agent, max_depth=0))
        with pytest.raises(BadInput):
            await providers(host).start(provider, request(agent, max_depth=-1))
        assert await children(host, agent.id) == []
        assert host.agents.list() == (agent,)


class Elsewhere:
    """A provider whose children live somewhere else, to whatever depth that place allows."""

    name = "elsewhere"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.asked: list[RunRequest] = []

    async def start(self, request: RunRequest) -> Run:
        self.asked.append(request)
        return Done(request)


class Done:
    def __init__(self, request: RunRequest) -> None:
        self.id = request.parent.id
        self.agent = None

    async def result(self) -> Outcome:
        return Outcome(ending="completed")

    async def dispose(self) -> None:
        pass


def _elsewhere(**more: object) -> SubagentConfig:
    other = InstanceConfig(provider="elsewhere", tool_name="outsource", **more)  # type: ignore[arg-type]
    return SubagentConfig(background_mode="continuable", instances=(other,))


async def test_provider_managed_sends_no_cap(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("outsource", description="E", prompt="P")), text("ok"))
    provider = Elsewhere()
    async with delegating(model, store, _elsewhere(max_depth="provider-managed")) as host:
        with providers(host).add(provider):
            agent = await start_agent(host)
            await agent.follow_up("go")
            await quiet(host, agent)
        assert host.tools.get("outsource") is None
    assert [asked.max_depth for asked in provider.asked] == [None]
    assert "closing message" in text_of(model.requests("R")[1].messages[-1].content)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"max_depth": 2}, "provider-managed"),
        ({"max_depth": "provider-managed", "background_mode": "continuable"}, "one-shot"),
    ],
)
async def test_what_a_provider_cannot_honour_fails_when_its_tool_would_appear(
    store: SessionStore, more: dict[str, object], named: str
) -> None:
    async with delegating(ScriptedModel(), store, _elsewhere(**more)) as host:
        with ExitStack() as stack, pytest.raises(ConfigError, match=named):
            stack.enter_context(providers(host).add(Elsewhere()))
        assert providers(host).get("elsewhere") is None
        assert host.tools.get("outsource") is None
