"""The host for tests fails where a run left something wrong."""

import logging

import pytest

from retinue.agent.signals import MessageInserted
from retinue.session.events import StepStart, TurnEnd, TurnStart
from retinue.testing.clock import FakeClock
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import text


async def test_unused_replies_fail_the_host() -> None:
    with pytest.raises(AssertionError, match="never asked for"):
        async with scripted_host(ScriptedModel(text("x"))):
            pass


async def test_a_log_that_is_not_balanced_fails_the_host() -> None:
    async def run() -> None:
        async with scripted_host(ScriptedModel()) as host:
            agent = await start_agent(host)
            tx = agent.transaction()
            tx.append(agent.session, TurnStart(1), StepStart(1, 1))
            tx.submit()

    with pytest.raises(AssertionError, match="logs break the rules"):
        await run()


async def test_logged_errors_fail_the_host() -> None:
    def broken(_: MessageInserted) -> None:
        raise ValueError("listener")

    async def run() -> None:
        async with scripted_host(ScriptedModel()) as host:
            agent = await start_agent(host)
            agent.bus.on(MessageInserted, broken)
            agent.inject("x")

    with pytest.raises(AssertionError, match="listener"):
        await run()
    async with scripted_host(ScriptedModel(), errors_logged=True):
        logging.getLogger("retinue").error("expected")


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with scripted_host(ScriptedModel(text("unused"))):
            raise KeyError("mine")


async def test_an_abrupt_end_checks_nothing() -> None:
    async with scripted_host(ScriptedModel(text("x")), at_rest=False) as host:
        agent = await start_agent(host)
        agent.follow_up("go")


async def test_time_is_the_fake_clock() -> None:
    clock = FakeClock(now_ms=5_000)
    async with scripted_host(ScriptedModel(text("x")), clock=clock) as host:
        agent = await start_agent(host)
        await clock.advance(2)
        agent.follow_up("go")
        await agent.wait_idle()
        assert {event.time for event in agent.session.events} == {7_000}
        assert isinstance(agent.session.events[-1].data, TurnEnd)
