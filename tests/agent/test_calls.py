"""The calls of one step: overlap, barriers, order, failures, extra context. Source: behaviour TD."""

from dataclasses import replace

import pytest
from anyio import fail_after

from retinue.agent.signals import CallOutput
from retinue.base.chain import Next
from retinue.host.host import HostOptions
from retinue.model.content import Text
from retinue.session.events import AssistantReply, ToolReturned, ToolStart
from retinue.session.store import SessionStore
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from retinue.tools.function import tool
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import Tool, ToolContext, ToolResult
from tests.support.logs import outline
from tests.support.tools import echo, gated, tool_of


async def test_safe_calls_overlap_and_an_exclusive_one_is_a_barrier(store: SessionStore) -> None:
    trace: list[str] = []
    slow, exclusive = Gate(), Gate()
    fast = Gate()
    fast.open()
    tools = [
        gated("slow", slow, trace=trace),
        gated("fast", fast, trace=trace),
        gated("alone", exclusive, safe=False, trace=trace),
    ]
    model = ScriptedModel(calls(call("slow"), call("fast"), call("alone"), call("fast", words="last")), text("ok"))
    async with scripted_host(model, store=store, tools=tools) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await fast.wait_reached()
        await slow.wait_reached()
        assert exclusive.reached == 0
        slow.open()
        await exclusive.wait_reached()
        lines = outline(agent.session.events)
        assert lines[-5:] == ["start 0 slow", "start 1 fast", "result 1 fast", "result 0 slow", "start 2 alone"]
        exclusive.open()
        await agent.wait_idle()
        assert model.requests()[1].new == ("slow", "fast", "alone", "last")
    assert trace[-4:] == ["alone begins", "alone ends", "last begins", "last ends"]


async def test_results_are_logged_as_calls_end_and_seen_in_model_order(store: SessionStore) -> None:
    a, b = Gate(), Gate()
    model = ScriptedModel(calls(call("a"), call("b")), text("ok"))
    async with scripted_host(model, store=store, tools=[gated("a", a), gated("b", b)]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await a.wait_reached()
        await b.wait_reached()
        logged = Gate()
        agent.session.observe(lambda _, events: logged.open() if events[0].type == "tool/result" else None)
        b.open()
        await logged.wait()
        a.open()
        await agent.wait_idle()
        results = [e.data for e in agent.session.events if isinstance(e.data, ToolReturned)]
        assert [result.index for result in results] == [1, 0]
        assert model.requests()[1].results == ("a", "b")


async def test_at_most_width_pooled_bodies_run_at_once_and_others_do_not_count(store: SessionStore) -> None:
    pooled, free = Gate(), Gate()
    model = ScriptedModel(calls(*[call("pooled")] * 3, *[call("free")] * 2), text("ok"))
    tools = [gated("pooled", pooled), gated("free", free, pooled=False)]
    async with scripted_host(model, store=store, tools=tools, options=HostOptions(width=3)) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await free.wait_reached(2)
        assert pooled.reached == 3
        free.open()
        pooled.open()
        await agent.wait_idle()


async def test_a_full_pool_holds_the_next_call_back(store: SessionStore) -> None:
    gate, starts = Gate(), 0
    model = ScriptedModel(calls(*[call("slow")] * 4), text("ok"))
    async with scripted_host(model, store=store, tools=[gated("slow", gate)], options=HostOptions(width=2)) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached(2)
        await host.sessions.writer.committed()
        starts = sum(isinstance(e.data, ToolStart) for e in agent.session.events)
        gate.open()
        await agent.wait_idle()
    assert starts == 2
    assert gate.reached == 4


async def test_policy_runs_in_model_order_although_bodies_overlap(store: SessionStore) -> None:
    asked: list[str] = []
    first = Gate()

    async def policy(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        asked.append(f"ask {request.arguments['words']}")
        if request.arguments["words"] == "1":
            await first.wait()
        asked.append(f"pass {request.arguments['words']}")
        return await inner(request)

    body = Gate()
    model = ScriptedModel(calls(*[call("slow", words=str(i)) for i in (1, 2, 3)]), text("ok"))
    async with scripted_host(model, store=store, tools=[gated("slow", body)]) as host:
        host.chains.tool_call.wrap(policy)
        agent = await start_agent(host)
        agent.follow_up("go")
        await first.wait_reached()
        assert asked == ["ask 1"]
        first.open()
        await body.wait_reached(3)
        body.open()
        await agent.wait_idle()
    assert asked == ["ask 1", "pass 1", "ask 2", "pass 2", "ask 3", "pass 3"]


async def test_no_outside_body_starts_before_its_start_is_committed(store: SessionStore) -> None:
    faulty, gate, body = FaultyStore(store), Gate(), Gate()
    faulty.hold(appends("tool/start"), gate)
    model = ScriptedModel(calls(call("slow")), text("ok"))
    async with scripted_host(model, store=faulty, tools=[gated("slow", body)]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        assert body.reached == 0
        gate.open()
        body.open()
        await agent.wait_idle()
        assert body.reached == 1


async def test_no_request_is_sent_before_what_it_needs_is_committed(store: SessionStore) -> None:
    faulty, gate = FaultyStore(store), Gate()
    faulty.hold(appends("step/start"), gate)
    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=faulty) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        assert model.requests() == ()
        gate.open()
        await agent.wait_idle()


async def test_a_call_whose_effect_is_rows_has_no_start(store: SessionStore) -> None:
    rows = replace(echo, effect="rows")
    model = ScriptedModel(calls(call("echo", words="a")), text("ok"))
    async with scripted_host(model, store=store, tools=[rows]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert outline(agent.session.events)[3:6] == ["model: echo()", "result 0 a", "step 1 end"]


async def test_unknown_tools_and_bad_arguments_are_results_and_start_nothing(store: SessionStore) -> None:
    asked: list[str] = []

    async def policy(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        asked.append(request.tool.name)
        return await inner(request)

    model = ScriptedModel(
        calls(call("nothing"), call("echo", raw="{bad"), call("echo", words=3), call("echo", raw="")), text("ok")
    )
    async with scripted_host(model, store=store, tools=[echo]) as host:
        host.chains.tool_call.wrap(policy)
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert outline(agent.session.events)[4:8] == [
            "result 0 UNKNOWN_TOOL",
            "result 1 INVALID_ARGS",
            "result 2 INVALID_ARGS",
            "result 3 INVALID_ARGS",
        ]
        assert all(result.startswith("Error: ") for result in model.requests()[1].results)
    assert asked == [], "nobody is asked about a call that cannot run"


async def test_a_failing_body_is_a_result_and_the_turn_goes_on(store: SessionStore) -> None:
    @tool(safe=True)
    async def broken() -> str:
        """Fail."""
        raise OSError("no disk")

    model = ScriptedModel(calls(call("broken"), call("echo", words="a")), text("ok"))
    async with scripted_host(model, store=store, tools=[broken, echo]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        first, second = model.requests()[1].results
        assert first.startswith("Error: ")
        assert "no disk" in first
        assert second == "a"
        assert outline(agent.session.events)[-1] == "end 1 completed"


async def test_a_body_that_takes_too_long_is_stopped(store: SessionStore) -> None:
    gate = Gate()

    @tool(safe=True, timeout_s=0.01)
    async def slow() -> str:
        """Take long."""
        await gate.wait()
        return "never"

    model = ScriptedModel(calls(call("slow")), text("ok"))
    async with scripted_host(model, store=store, tools=[slow]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        with fail_after(20):
            await agent.wait_idle()
        assert "result 0 TIMEOUT" in outline(agent.session.events)


async def test_a_layer_may_deny_a_call_or_change_its_result(store: SessionStore) -> None:
    async def policy(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        if request.arguments["words"] == "rm":
            return ToolResult.error("DENIED", "not here")
        result = await inner(request)
        return replace(result, content=(*result.content, Text("!")))

    model = ScriptedModel(calls(call("echo", words="rm"), call("echo", words="a")), text("ok"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        host.chains.tool_call.wrap(policy)
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert model.requests()[1].results == ("Error: not here", "a!")
        assert [line for line in outline(agent.session.events) if line.startswith("start")] == ["start 1 echo"]


async def test_extra_context_of_a_result_enters_the_following_step(store: SessionStore) -> None:
    noted = tool_of("noted", lambda _: ToolResult(content=(Text("done"),), context=("mind the gap", "and the step")))
    model = ScriptedModel(calls(call("noted")), text("ok"))
    async with scripted_host(model, store=store, tools=[noted]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert model.requests()[1].new == ("done", "mind the gap", "and the step")
        assert len(model.requests()) == 2


async def test_a_tool_that_an_earlier_call_removed_is_unknown_to_later_calls(store: SessionStore) -> None:
    model = ScriptedModel(calls(call("remove"), call("echo", words="a")), text("ok"))
    async with scripted_host(model, store=store) as host:
        undo = host.tools.add(echo)

        def remove(_: ToolContext) -> ToolResult:
            undo()
            return ToolResult.text("removed")

        host.tools.add(tool_of("remove", remove, safe=False))
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert outline(agent.session.events)[6] == "result 1 UNKNOWN_TOOL"
        assert model.requests()[1].tool_names == ("remove",)


async def test_a_failing_scheduler_stops_starts_and_ends_the_turn_as_error(store: SessionStore) -> None:
    async def finish(_tool: Tool | None, _context: ToolContext, _result: ToolResult) -> ToolResult:
        raise ValueError("finisher broke")

    model = ScriptedModel(calls(call("alone"), call("echo", words="a")))
    alone = replace(echo, spec=replace(echo.spec, name="alone"), is_safe=lambda _: False)
    async with scripted_host(model, store=store, tools=[alone, echo]) as host:
        host.add_finisher(finish)
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        lines = outline(agent.session.events)
        assert lines[-1] == "end 1 error UNKNOWN"
        assert "start 1 echo" not in lines


async def test_a_result_names_its_call_even_if_the_provider_repeats_ids(store: SessionStore) -> None:
    twice = calls(call("echo", words="a", wire_id="x"), call("echo", words="b", wire_id="x"))
    again = calls(call("echo", words="c", wire_id="x"))
    model = ScriptedModel(twice, again, text("ok"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert model.requests()[2].results == ("a", "b", "c")
        (first, *_) = [e.data for e in agent.session.events if isinstance(e.data, AssistantReply)]
        assert len({c.id for c in first.message.calls}) == 2


@pytest.mark.parametrize("arguments", ["{}", "", "  "])
async def test_empty_arguments_are_an_empty_object(store: SessionStore, arguments: str) -> None:
    plain = tool_of("plain", lambda _: ToolResult.text("fine"))
    model = ScriptedModel(calls(call("plain", raw=arguments)), text("ok"))
    async with scripted_host(model, store=store, tools=[plain]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        assert model.requests()[1].results == ("fine",)


async def test_what_a_body_shows_is_told_under_its_call_and_nobody_makes_it_if_nobody_listens(
    store: SessionStore,
) -> None:
    watched: list[bool] = []

    @tool
    async def bake(ctx: ToolContext) -> str:
        """Bake."""
        watched.append(ctx.tell is not None)
        if ctx.tell is not None:
            ctx.tell("kneading")
        return "a loaf"

    heard: list[tuple[str, int, str]] = []
    model = ScriptedModel(calls(call("bake")), text("ok"), calls(call("bake"), call("bake")), text("ok"))
    async with scripted_host(model, store=store, tools=[bake]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        with host.bus.on(CallOutput, lambda said: heard.append((said.agent.id, said.key.index, said.text))):
            agent.follow_up("again")
            await agent.wait_idle()
    assert watched == [False, True, True]
    assert heard == [(agent.id, 0, "kneading"), (agent.id, 1, "kneading")]
