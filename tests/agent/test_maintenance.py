"""Maintenance: the host works on an idle agent, and no turn runs meanwhile."""

import pytest

from retinue.errors import AgentBusy
from retinue.session.store import SessionStore
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import hold, text


async def test_maintenance_needs_true_idle_and_is_refused_before_anything_is_done(store: SessionStore) -> None:
    gate = Gate()
    async with scripted_host(ScriptedModel(hold(gate, text("1"))), store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")

        async def work() -> None:
            raise AssertionError("must not run")

        with pytest.raises(AgentBusy, match="running"):
            await agent.run_maintenance(work)
        gate.open()


async def test_two_maintenances_do_not_overlap(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)

        async def work() -> str:
            with pytest.raises(AgentBusy):
                await agent.run_maintenance(work)
            return "done"

        assert await agent.run_maintenance(work) == "done"


async def test_what_the_work_raises_is_passed_on_and_the_agent_is_usable(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        agent = await start_agent(host)

        async def work() -> None:
            agent.follow_up("a")
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await agent.run_maintenance(work)
        await agent.wait_idle()
        assert agent.last_text == "1"


async def test_cancel_stops_the_work(store: SessionStore) -> None:
    gate = Gate()
    outcomes: list[str] = []
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)

        async def maintain() -> None:
            with pytest.raises(AgentBusy, match="cancelled"):
                await agent.run_maintenance(gate.wait)
            outcomes.append("stopped")

        host.start(maintain)
        await gate.wait_reached()
        agent.cancel()
        await agent.wait_idle()
    assert outcomes == ["stopped"]


async def test_clearing_during_maintenance_opens_no_turn_after_it(store: SessionStore) -> None:
    gate = Gate()
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)

        async def work() -> None:
            agent.follow_up("a")
            await gate.wait()

        async def maintain() -> None:
            with pytest.raises(AgentBusy):
                await agent.run_maintenance(work)

        host.start(maintain)
        await gate.wait_reached()
        agent.cancel()
        await agent.wait_idle()
        assert agent.session.events == []
