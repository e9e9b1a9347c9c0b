"""An open turn goes on after its process ended, wherever that was. Source: behaviour SE-25, SE-26, architecture 3."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.model.content import Message, UserMessage, text_of
from retinue.session.events import TurnEnd
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from retinue.tools.tool import Tool, ToolContext, ToolResult
from tests.scenarios.stock import ticks
from tests.support.logs import outline
from tests.support.stores import OpenStore, store_opener
from tests.support.tools import echo, gated, tool_of

ROOT = SessionId("session-root")


def answer(seen: SeenRequest) -> Reply:
    """What a model would do that always acts alike: it looks at the conversation and at nothing else."""
    match seen.new[-1] if seen.new else "":
        case "first":
            return calls(call("echo", words="a"), call("rows", words="b"), text="on it")
        case "second":
            return text("second done")
        case _:
            return text("first done")


def patient() -> ScriptedModel:
    model = ScriptedModel()
    model.script("R", *[answer] * 40, every=True)
    model.script(str(ROOT), *[answer] * 40, every=True)
    return model


def tools() -> list[Tool]:
    return [echo, replace(echo, spec=replace(echo.spec, name="rows"), effect="rows")]


async def live(open_store: OpenStore, clock: FakeClock, die_at: int | None) -> tuple[bool, int]:
    """One life of the process: it does what is to be done, or dies at a commit. Says whether it died, and where."""
    faulty = FaultyStore(open_store(clock))
    if die_at is not None:
        faulty.die(die_at)
    async with scripted_host(patient(), store=faulty, clock=clock, tools=tools(), at_rest=False) as host:
        try:
            if await host.sessions.store.summary(ROOT) is None:
                agent = await start_agent(host, id=ROOT)
            else:
                agent = await resume_agent(host, ROOT)
            for words in ("first", "second"):
                rows = await host.sessions.store.read_rows(ROOT)
                if not any(text_of(row.delivery.message.content) == words for row in rows):
                    await agent.follow_up(words)
            await agent.wait_idle()
            if agent.failure is not None:
                raise agent.failure
        except Exception:
            if not faulty.is_dead:
                raise
    return faulty.is_dead, len(faulty.batches)


async def finished(open_store: OpenStore, clock: FakeClock) -> tuple[list[str], list[str]]:
    model = ScriptedModel()
    async with scripted_host(model, store=open_store(clock), clock=clock, tools=tools()) as host:
        agent = await resume_agent(host, ROOT)
        return outline(agent.session.events), [_words(message) for message in agent.session.history.messages]


def _words(message: Message) -> str:
    return f"{type(message).__name__}: {text_of(message.content)}"


def _essence(words: list[str]) -> list[str]:
    """The conversation without notes of the runtime and with the results of calls that a crash may change."""
    kept = [line for line in words if "The process that ran you" not in line]
    return [line if not line.startswith("ToolMessage: Error") else "ToolMessage: a" for line in kept]


async def test_a_life_may_end_at_any_commit_and_the_conversation_is_the_same(
    fresh_store: Callable[[], OpenStore],
) -> None:
    clock = FakeClock()
    calm = fresh_store()
    died, commits = await live(calm, clock, None)
    assert not died
    _, expected = await finished(calm, clock)
    assert expected == [
        "UserMessage: first",
        "AssistantMessage: on it",
        "ToolMessage: a",
        "ToolMessage: b",
        "AssistantMessage: first done",
        "UserMessage: second",
        "AssistantMessage: second done",
    ]
    for point in range(1, commits + 1):
        place = fresh_store()
        died, _ = await live(place, clock, point)
        assert died
        await live(place, clock, None)
        lines, words = await finished(place, clock)
        assert _essence(words) == expected, (point, lines)
        assert lines[-1] == "end 2 completed", (point, lines)


@pytest.mark.exploration
async def test_a_process_may_die_again_while_it_goes_on(tmp_path: Path) -> None:
    clock = FakeClock()
    calm = store_opener("memory", tmp_path)
    _, commits = await live(calm, clock, None)
    _, expected = await finished(calm, clock)
    for first in range(2, commits + 1):
        for second in range(1, 5):
            place = store_opener("memory", tmp_path)
            await live(place, clock, first)
            await live(place, clock, second)
            await live(place, clock, None)
            lines, words = await finished(place, clock)
            assert _essence(words) == expected, (first, second, lines)


async def reopened(open_store: OpenStore, clock: FakeClock, model: ScriptedModel, tools: list[Tool]) -> Agent:
    async with scripted_host(model, store=open_store(clock), clock=clock, tools=tools) as host:
        agent = await resume_agent(host, ROOT)
        await agent.wait_idle()
        return agent


async def cut_off(open_store: OpenStore, clock: FakeClock, model: ScriptedModel, tools: list[Tool], gate: Gate) -> None:
    """A life that ends when the gate is reached."""
    async with scripted_host(model, store=open_store(clock), clock=clock, tools=tools, at_rest=False) as host:
        agent = await start_agent(host, id=ROOT)
        agent.follow_up("go")
        await gate.wait_reached()


async def test_a_host_that_is_left_leaves_the_turn_open_and_the_next_one_goes_on(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    await cut_off(open_store, clock, ScriptedModel(text("so far").hold_after(gate)), [], gate)
    agent = await reopened(open_store, clock, ScriptedModel(text("whole")), [])
    assert outline(agent.session.events) == [
        "turn 1",
        "step 1",
        "user: go",
        "turn 1 resumed 1",
        "model: whole",
        "step 1 end",
        "end 1 completed",
    ]


async def test_no_request_leaves_before_it_is_stored_that_the_turn_goes_on(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    await cut_off(open_store, clock, ScriptedModel(hold(gate, text("never"))), [], gate)
    store, stored = FaultyStore(open_store(clock)), Gate()
    store.hold(appends("turn/resumed"), stored)
    model = ScriptedModel(text("whole"))
    async with scripted_host(model, store=store, clock=clock) as host:
        agent = await resume_agent(host, ROOT)
        await stored.wait_reached()
        await ticks()
        assert model.requests() == ()
        stored.open()
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 1 completed"


async def test_where_no_effect_is_unknown_nothing_is_added_to_the_conversation(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    rows = replace(gated("rows", gate, safe=False), effect="rows")
    await cut_off(open_store, clock, ScriptedModel(calls(call("rows"), call("echo", words="x"))), [rows, echo], gate)
    gate.open()
    model = ScriptedModel(text("ok"))
    agent = await reopened(open_store, clock, model, [rows, echo])
    assert outline(agent.session.events)[4:8] == [
        "turn 1 resumed 1",
        "result 1 TOOL_NOT_STARTED",
        "result 0 rows",
        "step 1 end",
    ]
    assert [message for message in agent.session.history.messages if isinstance(message, UserMessage)][1:] == []


async def test_a_started_call_has_an_unknown_outcome_and_the_model_is_told(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    slow = gated("slow", gate, safe=False)
    await cut_off(open_store, clock, ScriptedModel(calls(call("slow"), call("echo", words="x"))), [slow, echo], gate)
    model = ScriptedModel(text("ok"))
    agent = await reopened(open_store, clock, model, [slow, echo])
    lines = outline(agent.session.events)
    assert lines[3:9] == [
        "model: slow() echo()",
        "start 0 slow",
        "turn 1 resumed 1",
        "result 0 TOOL_OUTCOME_UNKNOWN",
        "result 1 TOOL_NOT_STARTED",
        "step 1 end",
    ]
    assert "these calls ran: slow" in model.requests()[0].new[-1]
    assert gate.reached == 1, "it did not run again"


async def test_the_note_about_an_unknown_outcome_is_not_lost_by_another_crash(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    slow = gated("slow", gate)
    await cut_off(open_store, clock, ScriptedModel(calls(call("slow"))), [slow], gate)
    faulty = FaultyStore(open_store(clock))
    async with scripted_host(ScriptedModel(), store=faulty, clock=clock, tools=[slow], at_rest=False) as host:
        seen = 0

        def after_the_result(batch: object) -> bool:
            nonlocal seen
            seen += bool(seen) or appends("tool/result")(batch)  # pyright: ignore[reportArgumentType]
            return seen > 1

        faulty.die(after_the_result)
        agent = await resume_agent(host, ROOT)
        await agent.wait_idle()
        assert faulty.is_dead
    model = ScriptedModel(text("ok"))
    await reopened(open_store, clock, model, [slow])
    assert "these calls ran: slow" in model.requests()[0].new[-1]


async def test_a_call_whose_effect_is_rows_is_executed_again(open_store: OpenStore, clock: FakeClock) -> None:
    gate = Gate()
    rows = replace(gated("rows", gate), effect="rows")
    await cut_off(open_store, clock, ScriptedModel(calls(call("rows"))), [rows], gate)
    gate.open()
    model = ScriptedModel(text("ok"))
    agent = await reopened(open_store, clock, model, [rows])
    assert outline(agent.session.events)[3:6] == ["model: rows()", "turn 1 resumed 1", "result 0 rows"]
    assert gate.reached == 2


async def test_notes_of_a_repeated_call_are_not_doubled(open_store: OpenStore, clock: FakeClock) -> None:
    def noted(_: ToolContext) -> ToolResult:
        return ToolResult(content=(), context=("note",))

    rows = replace(tool_of("rows", noted), effect="rows")
    faulty = FaultyStore(open_store(clock))
    faulty.die(appends("step/end"))
    async with scripted_host(
        ScriptedModel(calls(call("rows"))), store=faulty, clock=clock, tools=[rows], at_rest=False
    ) as host:
        agent = await start_agent(host, id=ROOT)
        agent.follow_up("go")
        await agent.wait_idle()
    model = ScriptedModel(text("ok"))
    agent = await reopened(open_store, clock, model, [rows])
    assert sum(isinstance(message, UserMessage) for message in agent.session.history.messages) == 2
    assert model.requests()[0].new[-1] == "note"


async def test_a_turn_that_is_resumed_again_and_again_without_progress_ends_as_error(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    await cut_off(open_store, clock, ScriptedModel(hold(gate, text("never"))), [], gate)
    again = Gate()
    model = ScriptedModel(hold(again, text("never")))
    async with scripted_host(model, store=open_store(clock), clock=clock, at_rest=False) as host:
        await resume_agent(host, ROOT)
        await again.wait_reached()
    again = Gate()
    model = ScriptedModel(hold(again, text("never")))
    async with scripted_host(model, store=open_store(clock), clock=clock, at_rest=False) as host:
        await resume_agent(host, ROOT)
        await again.wait_reached()
    agent = await reopened(open_store, clock, ScriptedModel(), [])
    assert outline(agent.session.events)[3:] == [
        "turn 1 resumed 1",
        "turn 1 resumed 2",
        "turn 1 resumed 3",
        "step 1 end",
        "end 1 error NO_PROGRESS",
    ]


async def test_input_that_came_before_the_end_of_a_process_is_read_after_it(
    open_store: OpenStore, clock: FakeClock
) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("never")))
    async with scripted_host(model, store=open_store(clock), clock=clock, at_rest=False) as host:
        agent = await start_agent(host, id=ROOT)
        agent.follow_up("go")
        await gate.wait_reached()
        await agent.steer("now")
        await agent.follow_up("then")
    model = ScriptedModel(text("1"), text("2"), text("3"))
    agent = await reopened(open_store, clock, model, [])
    assert [r.new for r in model.requests()] == [("go",), ("now",), ("then",)]
    assert isinstance(agent.session.events[-1].data, TurnEnd)
