"""The words of a settlement. Source: behaviour CN-04 to CN-06, CN-17."""

from typing import cast

import pytest

from retinue.base.ids import SessionId
from retinue.model.content import Image, InputBlock, Text, text_of
from retinue.subagent.notice import settlement_message
from retinue.subagent.outcome import ENDINGS, Ending, Outcome

C = SessionId("agent-1")
WORDS = {
    "completed": "has finished and is idle until you send it more",
    "max-tokens": "ran out of room for output before it finished",
    "refusal": "declined the task",
    "aborted": "was stopped before it finished",
    "error": "failed",
    "timeout": "ran out of time before it finished",
    "over-budget": "used up its budget before it finished",
    "interrupted": "was interrupted by the end of its process",
    "vanished": "ended abnormally (vanished)",
}
QUEUED = {
    0: "",
    1: "1 message is still queued for it; send_message resumes it with the oldest first.\n",
    2: "2 messages are still queued for it; send_message resumes it with the oldest first.\n",
}
FRAME = 'Its closing message:\n<child-message from="agent-1">\nwords\nmore\n</child-message>\n'


def told(ending: str, *closing: InputBlock, why: str | None = None, parked: int = 0, label: str | None = None) -> str:
    outcome = Outcome(ending=cast(Ending, ending), diagnostic=why)
    return text_of(settlement_message(C, 1, label, outcome, closing, parked).content)


def test_every_ending_has_words() -> None:
    assert set(ENDINGS) == set(WORDS) - {"vanished"}


@pytest.mark.parametrize("parked", QUEUED)
@pytest.mark.parametrize("ending", WORDS)
def test_a_notice_says_who_ended_how_then_what_waits_then_the_last_words(ending: str, parked: int) -> None:
    first = f"[notice] Agent agent-1 {WORDS[ending]}.\n"
    assert told(ending, Text("words"), Text("more"), parked=parked) == first + QUEUED[parked] + FRAME
    assert told(ending, parked=parked) == f"{first}{QUEUED[parked]}There is no closing message.\n"


def test_a_reason_is_one_line_and_stands_apart_from_the_words() -> None:
    text = told("error", Text("words"), Text("more"), why="X: it\nbroke", parked=1)
    assert text == f"[notice] Agent agent-1 failed.\nReason: X: it broke\n{QUEUED[1]}{FRAME}"
    assert "Reason" not in told("completed", why="X")


def test_the_label_is_one_bounded_line_in_the_notice_and_its_summary() -> None:
    first = told("completed", label="a\nb" + "c" * 500).splitlines()[0]
    assert first.startswith("[notice] Agent agent-1 (a bccc")
    assert len(first) < 220
    message = settlement_message(C, 1, "a\nb" + "c" * 500, Outcome(ending="completed"), (), 0)
    source = message.source
    assert (source.kind, source.form, source.sender_session_id) == ("subagent-settled", "notice", C)
    assert source.summary is not None
    assert (source.summary[:4], len(source.summary) <= 120, "\n" in source.summary) == ("a bc", True, False)


def test_an_image_comes_after_the_text_and_the_same_activation_has_the_same_id() -> None:
    image = Image("image/png", "QUJD")
    message = settlement_message(C, 1, None, Outcome(ending="completed"), (Text("words"), image), 0)
    assert [type(block) for block in message.content] == [Text, Image]
    again, later = (settlement_message(C, epoch, None, Outcome(ending="error"), (), 0) for epoch in (1, 2))
    assert (message.id == again.id, message.id == later.id) == (True, False)
