"""From chunks to one message."""

from hypothesis import given
from hypothesis import strategies as st

from retinue.model.assemble import Assembler
from retinue.model.chunks import CallDelta, CallStart, Chunk, Finish, ReasoningDelta, TextDelta, Used
from retinue.model.content import AssistantMessage, Reasoning, Text, ToolCall, Usage


def assembled(*chunks: Chunk) -> AssistantMessage:
    assembler = Assembler()
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.message()


CALL = (CallStart(0, "a", "f"), CallDelta(0, "{"), CallDelta(0, "}"))


def test_blocks_keep_their_order_and_calls_come_last() -> None:
    got = assembled(
        TextDelta("a"), *CALL, ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("b"), Finish("tool-calls")
    )
    assert got.content == (Text("a"), Reasoning("hm"), Text("b"), ToolCall("a", "f", "{}"))


def test_calls_of_a_truncated_reply_are_dropped() -> None:
    assert assembled(TextDelta("a"), *CALL, Finish("length")).content == (Text("a"),)


def test_an_interrupted_reply_keeps_its_text_and_no_call() -> None:
    assert assembled(TextDelta("half a "), TextDelta("sen"), *CALL).content == (Text("half a sen"),)


def test_missing_and_repeated_ids_are_made_unique() -> None:
    chunks = [CallStart(i, id, "f") for i, id in enumerate(["x", "x", "", "", "x_1"])]
    calls = assembled(*chunks, Finish("tool-calls")).calls
    assert len({call.id for call in calls}) == 5
    assert calls[0].id == "x"


@given(ids=st.lists(st.sampled_from(["", "x", "x_1", "call_1", "call_0"]), max_size=8))
def test_ids_are_unique_whatever_the_server_sends(ids: list[str]) -> None:
    calls = assembled(*(CallStart(i, id, "f") for i, id in enumerate(ids)), Finish("tool-calls")).calls
    assert len({call.id for call in calls}) == len(ids)


def test_a_signature_alone_is_kept() -> None:
    assert assembled(ReasoningDelta("", "proof"), Finish("stop")).content == (Reasoning("", "proof"),)


def test_the_last_usage_counts() -> None:
    assembler = Assembler()
    assembler.feed(Used(Usage(output_tokens=1, requests=1)))
    assembler.feed(Used(Usage(output_tokens=2, requests=1)))
    assert assembler.usage == Usage(output_tokens=2, requests=1)
