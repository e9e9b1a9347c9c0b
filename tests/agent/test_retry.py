"""Failed requests: which are tried again, when, and what becomes of the chunks."""

import pytest

from retinue.agent.environment import Attempt
from retinue.agent.signals import ChunkArrived, ChunksWithdrawn
from retinue.base.chain import Next
from retinue.host.host import HostOptions
from retinue.model.chunks import TextDelta
from retinue.model.retry import RetryPolicy
from retinue.session.events import ErrorRecord
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import cut, fail, text
from tests.support.logs import outline, turn_end

OPTIONS = HostOptions(retry=RetryPolicy(first_delay_s=0.5, jitter=0))


async def test_a_failed_request_is_tried_again_in_its_step_with_the_same_body(
    store: SessionStore, clock: FakeClock
) -> None:
    model = ScriptedModel(fail("server"), cut("half"), text("whole"))
    async with scripted_host(model, store=store, clock=clock, options=OPTIONS) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        for delay in (0.5, 1.0):
            await clock.wait_sleeping(delay)
            await clock.advance(delay)
        await agent.wait_idle()
        assert outline(agent.session.events)[2:] == ["user: go", "model: whole", "step 1 end", "end 1 completed"]
        assert [(r.attempt, r.state) for r in model.requests()] == [(1, "failed"), (2, "failed"), (3, "answered")]
        assert len({r.body for r in model.requests()}) == 1


async def test_chunks_of_a_failed_attempt_are_withdrawn(store: SessionStore, clock: FakeClock) -> None:
    heard: list[object] = []

    def note(event: ChunkArrived | ChunksWithdrawn) -> None:
        if isinstance(event, ChunksWithdrawn):
            heard.append(f"withdrawn {event.attempt} {event.delay_s}")
        elif isinstance(event.chunk, TextDelta):
            heard.append(f"{event.attempt} {event.chunk.text}")

    model = ScriptedModel(text("abc").then(fail("server")), text("x"))
    async with scripted_host(model, store=store, clock=clock, options=OPTIONS) as host:
        host.bus.on(ChunkArrived, note)
        host.bus.on(ChunksWithdrawn, note)
        agent = await start_agent(host)
        agent.follow_up("go")
        await clock.wait_sleeping(0.5)
        await clock.advance(0.5)
        await agent.wait_idle()
    assert heard == ["1 a", "1 b", "1 c", "withdrawn 1 0.5", "2 x"]


async def test_what_the_provider_asks_for_is_honoured_up_to_the_maximum(store: SessionStore, clock: FakeClock) -> None:
    model = ScriptedModel(fail("rate-limit", retry_after_s=3), fail("rate-limit", retry_after_s=100), text("x"))
    async with scripted_host(model, store=store, clock=clock, options=OPTIONS) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        for delay in (3, 10):
            await clock.wait_sleeping(delay)
            await clock.advance(delay)
        await agent.wait_idle()


async def test_after_the_last_retry_the_turn_ends_with_the_facts_of_the_failure(
    store: SessionStore, clock: FakeClock
) -> None:
    model = ScriptedModel(*[fail("timeout")] * 6)
    async with scripted_host(model, store=store, clock=clock, options=OPTIONS) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        for delay in (0.5, 1, 2, 4, 8):
            await clock.wait_sleeping(delay)
            await clock.advance(delay)
        await agent.wait_idle()
        assert outline(agent.session.events)[-2:] == ["step 1 end", "end 1 error MODEL_TIMEOUT"]


@pytest.mark.parametrize("kind", ["auth", "bad-request", "context-length"])
async def test_a_failure_that_would_come_again_is_not_retried(store: SessionStore, kind: str) -> None:
    model = ScriptedModel(fail(kind))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert len(model.requests()) == 1


async def test_a_layer_may_watch_or_answer_a_request(store: SessionStore) -> None:
    attempts: list[int] = []

    async def layer(attempt: Attempt, inner: Next[Attempt, None]) -> None:
        attempts.append(attempt.number)
        try:
            await inner(attempt)
        except Exception:
            await inner(attempt)

    model = ScriptedModel(fail("auth"), text("x"))
    async with scripted_host(model, store=store) as host:
        host.chains.model_request.wrap(layer)
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 1 completed"
    assert attempts == [1]


async def test_what_is_known_of_the_failure_that_ended_a_turn_is_in_its_end(store: SessionStore) -> None:
    model = ScriptedModel(fail("rate-limit", "slow down", status=429, retry_after_s=7.5))
    async with scripted_host(model, store=store, options=HostOptions(retry=RetryPolicy(max_retries=0))) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await agent.wait_idle()
        events = (await host.sessions.store.read(agent.id)).events
        assert turn_end(events).error == ErrorRecord("MODEL_RATE_LIMIT", "slow down", 429, 7.5)
