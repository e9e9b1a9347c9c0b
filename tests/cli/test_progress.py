"""What people see while agents work."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from retinue.agent.signals import ChunksWithdrawn
from retinue.base.ids import SessionId, new_message_id
from retinue.cli.headless.live import frame, live_tree
from retinue.cli.headless.progress import say
from retinue.cli.headless.watch import Line, Watch
from retinue.errors import ModelError, SessionHeld
from retinue.model.content import AssistantMessage, Text, ToolCall, ToolMessage, Usage, UserMessage
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Descriptor,
    Event,
    Payload,
    SessionHeader,
    StepStart,
    ToolReturned,
    TurnEnd,
    TurnStart,
)
from retinue.subagent.lifecycle import CallStatus, ExternalCall

ROOT = SessionId("session-root")


class Feeder:
    """Gives a watch the events of made-up sessions."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.watch.root = ROOT
        self._seqs: dict[str, int] = {}
        self._events: dict[str, list[Event]] = {}

    def __call__(self, id: str, *payloads: Payload, parent: str | None = None, depth: int = 0) -> None:
        header = SessionHeader(
            id=SessionId(id),
            created_at=0,
            parent_session=SessionId(parent) if parent else None,
            delegation_depth=depth,
        )
        first = self._seqs.get(id, 0)
        self._seqs[id] = first + len(payloads)
        events: Sequence[Event] = [Event(first + i, 1000, data) for i, data in enumerate(payloads)]
        self._events.setdefault(id, []).extend(events)
        self.watch.observe(cast(Any, SimpleNamespace(header=header, root=ROOT, events=self._events[id])), events)

    def lines(self, height: int = 40) -> list[str]:
        return frame(self.watch, height).plain.splitlines()


@pytest.fixture
def feed() -> Feeder:
    return Feeder()


def _calls(*names: str) -> AssistantReply:
    blocks = tuple(ToolCall(f"c{i}", name, "{}") for i, name in enumerate(names))
    return AssistantReply(turn=1, step=1, message=AssistantMessage(blocks), usage=Usage(900, 200, requests=1))


def _child(name: str) -> Descriptor:
    return Descriptor(mode="one-shot", provider="spawn", label=name)


def test_a_program_that_works_as_a_child_shows_its_own_calls_until_its_step_has_ended(feed: Feeder) -> None:
    def told(id: str, title: str, status: CallStatus) -> None:
        agent = cast(Any, SimpleNamespace(id=SessionId("child")))
        call = ExternalCall(agent=agent, turn=1, step=1, id=id, title=title, kind="other", status=status)
        feed.watch.external(call)

    told("a", "too early", "pending")
    feed(ROOT, TurnStart(1), StepStart(1, 1))
    feed("child", _child("ext"), TurnStart(1), StepStart(1, 1), parent=ROOT, depth=1)
    assert "thinking" in feed.lines()[1]
    told("a", "Read it", "pending")
    told("b", "Run it", "in_progress")
    assert "Read it, Run it" in feed.lines()[1]
    told("a", "Read it", "completed")
    assert "Read it" not in feed.lines()[1]
    feed("child", AssistantReply(turn=1, step=1, message=AssistantMessage((Text("Done."),))))
    assert "Run it" not in feed.lines()[1]


def test_an_agent_shows_what_it_is_doing(feed: Feeder) -> None:
    feed(ROOT, TurnStart(1), StepStart(1, 1))
    assert "thinking" in feed.lines()[0]
    feed(ROOT, _calls("subagent", "subagent", "read"))
    assert "subagent ×2, read" in feed.lines()[0]
    assert "1.1k tok" in feed.lines()[0]
    feed(ROOT, ToolReturned(turn=1, step=1, index=2, message=ToolMessage("c2", ())))
    assert "subagent ×2 " in feed.lines()[0]
    feed(ROOT, TurnEnd(turn=1, reason="error"))
    assert "✗" in feed.lines()[0]
    assert "error" in feed.lines()[0]


def test_a_root_goes_by_its_task(feed: Feeder) -> None:
    told = UserMessage(new_message_id(), (Text("Find out\nwhat went wrong in every log of this week and the last"),))
    feed(ROOT, TurnStart(1), StepStart(1, 1), told)
    assert feed.lines()[0].startswith("● Find out what went wrong in every log o…  thinking")


def test_a_request_that_is_made_again_says_why_until_it_is_answered(feed: Feeder) -> None:
    noted: list[str] = []

    def hear(_line: Line, text: str) -> None:
        noted.append(text)

    feed.watch.on_note(hear)
    feed(ROOT, TurnStart(1), StepStart(1, 1))
    agent = cast(Any, SimpleNamespace(id=ROOT))
    for attempt in (1, 2):
        error = ModelError("transport", "nothing listens there")
        feed.watch.withdrawn(ChunksWithdrawn(agent, 1, 1, attempt, error, 0.5))
        assert "trying again: nothing listens there" in feed.lines()[0]
    assert noted == ["the request failed and is made again: nothing listens there"]
    feed(ROOT, _calls("read"))
    assert "trying again" not in feed.lines()[0]


def test_a_call_that_nobody_can_be_asked_about_is_noted(feed: Feeder) -> None:
    noted: list[str] = []

    def hear(_line: Line, text: str) -> None:
        noted.append(text)

    feed.watch.on_note(hear)
    feed(ROOT, TurnStart(1), StepStart(1, 1), _calls("bash"))
    feed(ROOT, ApprovalAsked(id="q", turn=1, step=1, index=0, call_id="c0", name="bash", rule="bash"))
    feed(ROOT, ApprovalDecided(id="q", turn=1, step=1, index=0, verb="reject", by="policy"))
    assert noted == ["bash was rejected: it needs an approval, and nobody can be asked (see --ask)"]


async def test_what_fails_below_the_live_tree_is_raised_as_it_is() -> None:
    with pytest.raises(SessionHeld):
        async with live_tree(Watch()):
            raise SessionHeld("somebody else drives it")


def test_children_stand_below_their_parents(feed: Feeder) -> None:
    feed(ROOT, TurnStart(1))
    feed("a", _child("first"), TurnStart(1), parent=ROOT, depth=1)
    feed("b", _child("second"), TurnStart(1), parent=ROOT, depth=1)
    feed("c", _child("grandchild"), TurnStart(1), parent="a", depth=2)
    assert [line.split()[1] for line in feed.lines()] == [ROOT, "first", "grandchild", "second"]
    assert [len(line) - len(line.lstrip()) for line in feed.lines()] == [0, 2, 4, 2]


def test_what_does_not_fit_is_counted_and_those_at_work_come_first(feed: Feeder) -> None:
    feed(ROOT, TurnStart(1))
    for number in range(50):
        feed(f"c{number}", _child(f"child-{number}"), TurnStart(1), parent=ROOT, depth=1)
        if number != 49:
            feed(f"c{number}", TurnEnd(turn=1, reason="completed"), parent=ROOT, depth=1)
    lines = feed.lines(height=12)
    assert len(lines) == 11
    assert any("child-49" in line for line in lines)
    assert lines[-1] == "… and 41 more"


def test_events_of_another_tree_are_none_of_ours(feed: Feeder) -> None:
    other = SimpleNamespace(header=SessionHeader(id=SessionId("x"), created_at=0), root=SessionId("x"))
    feed.watch.observe(cast(Any, other), [Event(0, 0, TurnStart(1))])
    assert feed.watch.lines == {}


def test_a_continuable_child_is_done_when_it_settles_and_not_at_the_end_of_a_turn(feed: Feeder) -> None:
    told: list[tuple[str, str | None]] = []

    def hear(line: Line) -> None:
        told.append((line.label, line.state))

    feed.watch.on_change(hear)
    feed(ROOT, TurnStart(1), TurnEnd(turn=1, reason="completed"))
    made = Descriptor(mode="continuable", provider="spawn", label="kid")
    feed("k", made, ActivationStart(1), TurnStart(1), TurnEnd(turn=1, reason="completed"), parent=ROOT, depth=1)
    assert told[2:] == [("kid", None)]
    assert ["waiting" in line for line in feed.lines()] == [True, True]
    feed("k", TurnStart(2), TurnEnd(turn=2, reason="completed"), ActivationEnd(epoch=1, outcome="aborted"), parent=ROOT)
    assert told[3:] == [("kid", "aborted")]
    assert "completed" in feed.lines()[0]


def test_a_child_that_was_stored_before_has_its_label(feed: Feeder) -> None:
    header = SessionHeader(id=SessionId("k"), created_at=0, parent_session=ROOT, delegation_depth=1)
    events = [Event(0, 0, _child("kid")), Event(1, 0, TurnStart(1))]
    feed.watch.observe(cast(Any, SimpleNamespace(header=header, root=ROOT, events=events)), events[1:])
    assert feed.watch.lines[SessionId("k")].label == "kid"


def test_names_that_a_model_made_up_cannot_touch_the_terminal(feed: Feeder, capsys: pytest.CaptureFixture[str]) -> None:
    label = "a\x1b[2J\x1b]0;title\x07b\nfake line " + "x" * 200
    feed(ROOT, TurnStart(1), StepStart(1, 1), _calls("to\x1b[31mol\n"))
    feed("k", _child(label), TurnStart(1), parent=ROOT, depth=1)
    root, child = feed.lines()
    assert "tool" in root
    assert "ab fake line xxx" in child
    assert "\x1b" not in root + child
    assert "x" * 90 not in child
    say("one\x1b[1m\ntwo\x9b1m\r")
    assert capsys.readouterr().err == "one\ntwo\n\n"
