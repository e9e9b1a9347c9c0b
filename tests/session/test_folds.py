"""Folds of any log: the same in pieces as in one go, and results only in the order of the calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession
from retinue.model.content import AssistantMessage, Message, Text, ToolCall, ToolMessage, Usage
from retinue.session.events import (
    AssistantReply,
    Descriptor,
    Event,
    Payload,
    RequestContext,
    RequestHeader,
    RequestHeaderChange,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from retinue.session.folds import History, Turns, descriptor, seed_boundary, total_usage
from retinue.session.invariants import violations
from tests.session.logs import SESSION, ended, log, reply, returned, said, started, whole_log


class Story:
    """A log as it is told, and the history that a model should see of it."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self.payloads: list[Payload] = []
        self.history: list[Message] = []
        self.ends: list[int] = []
        self.usage = Usage()

    def turn(self, turn: int) -> None:
        self.payloads.append(TurnStart(turn))
        if self._draw(st.booleans()):
            self.payloads.append(RequestContext("local", "small"))
            self.payloads.append(RequestHeaderChange(RequestHeader(config={"turn": turn}), "change"))
        for step in range(1, self._draw(st.integers(0, 3)) + 1):
            self.step(turn, step)
        self.payloads.append(ended(turn))
        self.ends.append(len(self.payloads))

    def step(self, turn: int, step: int) -> None:
        self.payloads.append(StepStart(turn, step))
        for number in range(self._draw(st.integers(0, 2))):
            message = said(f"m-{turn}-{step}-{number}")
            self.payloads.append(message)
            self.history.append(message)
        if self._draw(st.booleans()):
            self.payloads.append(TurnResumed(turn, 1))
        calls = self._draw(st.integers(0, 4))
        words = (Text("Well."),) if self._draw(st.booleans()) else ()
        # Providers repeat their ids, so all calls have the same.
        message = AssistantMessage((*words, *[ToolCall("call", f"tool-{i}", "{}") for i in range(calls)]))
        usage = self._draw(st.none() | st.builds(Usage, input_tokens=st.integers(0, 9), requests=st.just(1)))
        self.payloads.append(AssistantReply(turn=turn, step=step, message=message, usage=usage))
        if message.content:
            self.history.append(message)
        if usage is not None:
            self.usage = self.usage + usage
        results = [ToolMessage("call", (Text(f"result {turn}-{step}-{i}"),)) for i in range(calls)]
        for index in self._draw(st.permutations(range(calls))):
            if self._draw(st.booleans()):
                self.payloads.append(ToolStart(turn=turn, step=step, index=index, call_id="call", name=f"tool-{index}"))
            self.payloads.append(ToolReturned(turn=turn, step=step, index=index, message=results[index]))
        self.history.extend(results)
        self.payloads.append(StepEnd(turn, step))


@st.composite
def stories(draw: Any) -> Story:
    story = Story(draw)
    for turn in range(1, draw(st.integers(0, 3)) + 1):
        story.turn(turn)
    return story


def told(events: list[Event]) -> tuple[History, Turns]:
    history, turns = History(), Turns(SESSION)
    for event in events:
        history.apply(event)
        turns.apply(event)
    return history, turns


def standing(turns: Turns) -> tuple[object, ...]:
    return turns.last, turns.open, turns.header, turns.context, turns.usage, turns.activation, turns.epochs


@settings(max_examples=40)
@given(stories())
def test_any_story_breaks_no_rule(story: Story) -> None:
    assert violations(log(*story.payloads), quiescent=True) == []


@settings(max_examples=40)
@given(stories())
def test_history_has_every_result_in_the_order_of_the_calls(story: Story) -> None:
    history, turns = told(log(*story.payloads))
    assert history.messages == story.history
    assert turns.open is None
    assert turns.usage == story.usage == total_usage(log(*story.payloads))


@settings(max_examples=40)
@given(stories())
def test_history_only_grows_and_shows_results_when_all_of_a_step_are_there(story: Story) -> None:
    history = History()
    owed = 0
    for event in log(*story.payloads):
        before = list(history.messages)
        history.apply(event)
        assert history.messages[: len(before)] == before
        if isinstance(event.data, AssistantReply):
            owed = len(event.data.message.calls)
        elif isinstance(event.data, ToolReturned):
            owed -= 1
            assert (len(history.messages) > len(before)) == (owed == 0)


@settings(max_examples=40)
@given(stories(), st.data())
def test_a_prefix_and_then_the_rest_is_the_whole(story: Story, data: st.DataObject) -> None:
    """A session that is loaded in the middle of its story and goes on ends like one that was never away."""
    events = log(*story.payloads)
    cut = data.draw(st.integers(0, len(events)))
    history, turns = told(events[:cut])
    for event in events[cut:]:
        history.apply(event)
        turns.apply(event)
    whole_history, whole_turns = told(events)
    assert history.messages == whole_history.messages
    assert standing(turns) == standing(whole_turns)


@settings(max_examples=40)
@given(stories())
def test_a_seed_stops_behind_the_newest_end_of_a_turn(story: Story) -> None:
    events = log(*story.payloads)
    for length in range(len(events) + 1):
        boundary = seed_boundary(events[:length])
        assert boundary == max((end for end in story.ends if end <= length), default=0)
        assert violations(events[:boundary], quiescent=True) == []


def test_an_empty_reply_is_no_part_of_history() -> None:
    empty = AssistantReply(turn=1, step=1, message=AssistantMessage(()), usage=Usage(input_tokens=3, requests=1))
    history, turns = told(log(TurnStart(1), StepStart(1, 1), said("m1"), empty, StepEnd(1, 1)))
    assert history.messages == [said("m1")]
    assert turns.usage.input_tokens == 3


# Where a turn stands.


def test_an_open_step_knows_what_it_owes() -> None:
    events = log(
        TurnStart(1),
        StepStart(1, 1),
        said("m1"),
        reply(1, 1, "a", "b", "c"),
        started(1, 1, 1, "b"),
        returned(1, 1, 2, "c"),
    )
    _, turns = told(events)
    assert turns.open is not None
    assert turns.open.step is not None
    assert (turns.open.step.missing, turns.open.step.started, turns.open.step.returned) == ((0, 1), {1}, {2})
    assert turns.open.step.reply_seq == 3


def test_a_step_with_calls_owes_another_one_and_a_last_one_does_not() -> None:
    events = whole_log()
    first = told(events[:9])[1].open
    last = told(events[:13])[1].open
    assert first is not None
    assert last is not None
    assert (first.steps, first.step, first.owes_step) == (1, None, True)
    assert (last.steps, last.step, last.owes_step) == (2, None, False)


def test_how_often_a_turn_was_resumed_counts_from_its_last_finished_step() -> None:
    again = [TurnResumed(1, 1), TurnResumed(1, 2)]
    counts: list[int] = []
    turns = Turns(SESSION)
    for event in log(TurnStart(1), *again, StepStart(1, 1), reply(1, 1), StepEnd(1, 1), TurnResumed(1, 1)):
        turns.apply(event)
        counts.append(turns.open.resumed if turns.open else -1)
    assert counts == [0, 1, 2, 2, 2, 0, 1]


@pytest.mark.parametrize(
    "payloads",
    [
        (TurnStart(2),),
        (TurnStart(1), TurnStart(2)),
        (ended(1),),
        (TurnStart(1), StepStart(1, 2)),
        (TurnStart(1), StepStart(1, 1), StepStart(1, 2)),
        (TurnStart(1), StepStart(1, 1), ended(1)),
        (TurnStart(1), StepEnd(1, 1)),
        (TurnStart(1), reply(1, 1)),
        (TurnStart(1), StepStart(1, 1), returned(1, 1, 0, "a")),
        (TurnStart(1), StepStart(1, 1), reply(1, 1, "a"), StepEnd(1, 1)),
        (TurnStart(1), StepStart(1, 1), reply(1, 1, "a"), *[returned(1, 1, 0, "a")] * 2),
        (TurnResumed(1, 1),),
    ],
)
def test_an_event_that_cannot_follow_is_corrupt_and_found_by_the_invariants_too(payloads: tuple[Payload, ...]) -> None:
    with pytest.raises(CorruptSession, match=f"{SESSION!r}.*event {len(payloads) - 1}"):
        told(log(*payloads))
    assert violations(log(*payloads)) != []


def test_the_own_descriptor_is_the_first_behind_the_seed() -> None:
    inherited = Descriptor(mode="one-shot", provider="fork")
    own, later = [Descriptor(mode="continuable", provider="spawn", label=label) for label in "ab"]
    events = log(inherited, TurnStart(1), TurnEnd(turn=1, reason="completed"), own, later)
    header = SessionHeader(id=SessionId("child"), created_at=1, seed_length=3)
    assert descriptor(header, events) == own
    assert descriptor(SessionHeader(id=SessionId("x"), created_at=1), events) == inherited
    assert descriptor(header, events[:3]) is None
