"""Results that satisfy a schema: delivered by a call, taken from the log, owed until they are there."""

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.agent.environment import TurnStopping
from retinue.base.chain import Next
from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.errors import SchemaError, UnsupportedCapability
from retinue.host.host import Host
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import Capabilities, Run, RunRequest
from retinue.subagent.structured import check_schema
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text, truncated
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import CallKey, ToolResult
from tests.support.delegation import children, delegating, log, providers, request
from tests.support.stores import OpenStore
from tests.support.tools import echo

SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}


async def _run(host: Host, *, provider: str = "spawn", key: CallKey | None = None) -> Outcome:
    agent = await start_agent(host)
    run = await providers(host).start(provider, request(agent, "C", output_schema=SCHEMA, key=key))
    try:
        return await run.result()
    finally:
        await run.dispose()


async def test_a_delivered_result_concludes_the_run(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("C", calls(call("structured_output", count=3), text="here it is"))
    async with delegating(model, store) as host:
        outcome = await _run(host)
    assert (outcome.ending, outcome.structured, outcome.text) == ("completed", {"count": 3}, "here it is")
    seen = model.requests("C")[0]
    spec = next(spec for spec in seen.tools if spec.name == "structured_output")
    assert spec.parameters == SCHEMA
    assert "`structured_output`" in seen.system.split("\n\n")[-1]


async def test_only_the_run_that_was_asked_for_one_has_the_tool(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("C", text("words"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        run = await providers(host).start("spawn", request(agent, "C"))
        outcome = await run.result()
        await run.dispose()
        assert agent.tools.get("structured_output") is None
    assert (outcome.ending, outcome.structured) == ("completed", None)
    assert "structured_output" not in model.requests("C")[0].tool_names


async def test_what_does_not_fit_can_be_mended_within_the_turn(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("C", calls(call("structured_output", count="three")), calls(call("structured_output", count=3)))
    async with delegating(model, store) as host:
        outcome = await _run(host)
    assert outcome.structured == {"count": 3}
    assert "expected integer" in model.requests("C")[1].results[0]


async def test_without_a_delivery_a_completed_run_is_an_error(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("C", text("it is three"))
    async with delegating(model, store) as host:
        outcome = await _run(host)
    assert (outcome.ending, outcome.structured, outcome.text) == ("error", None, "it is three")
    assert "structured_output" in (outcome.diagnostic or "")


async def test_another_ending_stays_what_it_is(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("C", truncated("it is th"))
    async with delegating(model, store) as host:
        outcome = await _run(host)
    assert (outcome.ending, outcome.structured) == ("max-tokens", None)


async def test_what_was_delivered_before_a_cancellation_is_kept(store: SessionStore) -> None:
    async def linger(stopping: TurnStopping, inner: Next[TurnStopping, None]) -> None:
        await gate.wait()
        await inner(stopping)

    model, gate = ScriptedModel(), Gate()
    model.script("C", calls(call("structured_output", count=3)))
    async with delegating(model, store) as host:
        host.chains.turn_stopping.wrap(linger)
        outcome = await _cancelled(host, gate)
        assert (outcome.ending, outcome.structured) == ("aborted", {"count": 3})


async def test_a_run_that_was_cancelled_and_completed_all_the_same_is_no_error(store: SessionStore) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("C", calls(call("subagent", description="G", prompt="below")), text("I wait"), text("never mind"))
    model.script("G", hold(gate, text("G done")))
    async with delegating(model, store) as host:
        outcome = await _cancelled(host, gate, waits_idle=True)
        assert (outcome.ending, outcome.structured) == ("aborted", None)
        assert (outcome.text, outcome.diagnostic) == ("never mind", None)


async def _cancelled(host: Host, gate: Gate, *, waits_idle: bool = False) -> Outcome:
    """What a run comes to whose `result` was cancelled when the gate was reached, and the child had come to rest."""
    agent = await start_agent(host)
    run = await providers(host).start("spawn", request(agent, "C", output_schema=SCHEMA))
    assert run.agent is not None
    async with anyio.create_task_group() as group:
        group.start_soon(run.result)
        await gate.wait_reached()
        if waits_idle:
            await run.agent.wait_idle()
        group.cancel_scope.cancel()
    gate.open()
    outcome = await run.result()
    await run.dispose()
    return outcome


async def test_later_calls_are_denied_and_earlier_ones_are_not(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script(
        "C",
        calls(
            call("echo", words="before"),
            call("structured_output", count=1),
            call("echo", words="after"),
            call("structured_output", count=2),
        ),
    )
    async with delegating(model, store, tools=[echo]) as host:
        outcome = await _run(host)
        (child,) = await children(host, host.agents.roots()[0].id)
        results = [e.data for e in await log(host, child) if e.type == "tool/result"]
    codes = [result.error.code if result.error else None for result in results]  # type: ignore[union-attr]
    assert codes == [None, None, "RESULT_DELIVERED", "RESULT_DELIVERED"]
    assert outcome.structured == {"count": 1}


async def test_a_layer_that_turns_the_result_into_an_error_voids_it(store: SessionStore) -> None:
    seen: list[int] = []

    async def veto(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        result = await inner(request)
        seen.append(1)
        return ToolResult.error("VETO", "count higher") if len(seen) == 1 else result

    model = ScriptedModel()
    model.script("C", calls(call("structured_output", count=1)), calls(call("structured_output", count=2)))
    async with delegating(model, store) as host:
        host.chains.tool_call.wrap(veto)
        outcome = await _run(host)
    assert outcome.structured == {"count": 2}
    assert "count higher" in model.requests("C")[1].results[0]


async def test_a_layer_may_change_what_is_delivered(store: SessionStore) -> None:
    async def change(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        return await inner(ToolRequest(tool=request.tool, arguments={"count": 7}, context=request.context))

    model = ScriptedModel()
    model.script("C", calls(call("structured_output", count=1)))
    async with delegating(model, store) as host:
        host.chains.tool_call.wrap(change)
        assert (await _run(host)).structured == {"count": 7}


async def test_a_result_that_a_layer_rewrote_still_counts_as_what_the_model_gave(store: SessionStore) -> None:
    async def rewrite(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        await inner(request)
        return ToolResult.text("fine")

    model = ScriptedModel()
    model.script("C", calls(call("structured_output", count=1)), text("done"))
    async with delegating(model, store) as host:
        host.chains.tool_call.wrap(rewrite)
        assert (await _run(host)).structured == {"count": 1}


async def test_a_run_that_a_crash_cut_off_still_owes_or_has_its_result(open_store: OpenStore, clock: FakeClock) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("C", calls(call("structured_output", count="no")), hold(gate, text("never")))
    key = CallKey(session_id=(await _root_id(open_store, clock)), seq=0, index=0)

    async def start(host: Host, agent: Agent) -> Run:
        return await providers(host).start("spawn", request(agent, "C", output_schema=SCHEMA, key=key))

    async with delegating(model, open_store(clock), at_rest=False) as host:
        await start(host, await resume_agent(host, key.session_id))
        await gate.wait_reached()
    second = ScriptedModel()
    second.script("C", calls(call("structured_output", count=4)))
    async with delegating(second, open_store(clock)) as host:
        run = await start(host, await resume_agent(host, key.session_id))
        assert (await run.result()).structured == {"count": 4}
        await run.dispose()
    async with delegating(ScriptedModel(), open_store(clock)) as host:
        run = await start(host, await resume_agent(host, key.session_id))
        assert run.agent is None
        assert (await run.result()).structured == {"count": 4}


async def _root_id(open_store: OpenStore, clock: FakeClock) -> SessionId:
    async with delegating(ScriptedModel(), open_store(clock)) as host:
        return (await start_agent(host)).id


async def test_a_fork_is_not_credited_with_what_its_parent_delivered(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("C", calls(call("structured_output", count=1)))
    model.script("F", calls(call("structured_output", count=2)))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        run = await providers(host).start("spawn", request(agent, "C", output_schema=SCHEMA))
        await run.result()
        assert run.agent is not None
        fork = await providers(host).start("fork", request(run.agent, "F", output_schema=SCHEMA))
        assert (await fork.result()).structured == {"count": 2}
        await fork.dispose()
        await run.dispose()


# --- refusals, before the provider is asked ---


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": {"type": "string"}},
        {"type": ["object", "null"]},
        {"type": "object", "properties": {"a": {"type": "strnig"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema.json"}}},
    ],
)
async def test_a_schema_that_no_child_can_be_held_to_is_refused(store: SessionStore, schema: JSONObject) -> None:
    async with delegating(ScriptedModel(), store) as host:
        agent = await start_agent(host)
        with pytest.raises(SchemaError):
            await providers(host).start("spawn", request(agent, "C", output_schema=schema))
        assert await children(host, agent.id) == []


def test_a_schema_may_refer_to_its_own_definitions() -> None:
    check_schema({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}})


async def test_a_continuable_child_has_no_structured_result(store: SessionStore) -> None:
    async with delegating(ScriptedModel(), store) as host:
        agent = await start_agent(host)
        with pytest.raises(UnsupportedCapability, match="one-shot"):
            await host.require(CONTINUATIONS, needed_by="a test").start(
                "spawn", request(agent, "C", output_schema=SCHEMA)
            )
        assert await children(host, agent.id) == []


class _Plain:
    name = "plain"
    capabilities = Capabilities()

    async def start(self, request: RunRequest) -> Run:
        raise AssertionError("it must not be asked")


async def test_a_provider_that_cannot_deliver_one_is_not_asked(store: SessionStore) -> None:
    async with delegating(ScriptedModel(), store) as host:
        agent = await start_agent(host)
        with providers(host).add(_Plain()), pytest.raises(UnsupportedCapability, match="output_schema"):
            await providers(host).start("plain", request(agent, "C", output_schema=SCHEMA))
