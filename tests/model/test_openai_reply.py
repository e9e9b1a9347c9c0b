"""Replies as servers really send them become the same chunks and one message."""

import json
from typing import Any

import pytest

from retinue.errors import ModelError
from retinue.model.adapters.openai_reply import ReplyReader
from retinue.model.assemble import Assembler
from retinue.model.chunks import CallDelta, CallStart, Chunk, Finish, ReasoningDelta, TextDelta, Used
from retinue.model.content import AssistantMessage, Reasoning, Text, ToolCall, Usage
from tests.support.model_server import delta, reply_of


def chunks_of(*events: dict[str, Any] | str) -> list[Chunk]:
    chunks: list[Chunk] = []
    reader = ReplyReader(chunks.append, "test")
    for value in events:
        reader.event((value if isinstance(value, str) else json.dumps(value)).encode())
    reader.end()
    return chunks


def message_of(*events: dict[str, Any] | str) -> AssistantMessage:
    assembler = Assembler()
    for chunk in chunks_of(*events):
        assembler.feed(chunk)
    return assembler.message()


def calls_of(*deltas: dict[str, Any]) -> list[tuple[str, str, str]]:
    events = [delta(tool_calls=[part]) for part in deltas]
    return [(c.id, c.name, c.arguments) for c in message_of(*events, delta("tool_calls")).calls]


def part(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    fields = {"index": index, "id": id, "function": {k: v for k, v in function.items() if v is not None}}
    return {k: v for k, v in fields.items() if v is not None}


def test_text_and_reasoning_arrive_in_order_and_finish_comes_last() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    got = chunks_of(
        delta(role="assistant", content=""), delta(reasoning_content="hm"), delta(content="a"), delta("stop"), usage
    )
    assert got == [
        ReasoningDelta("hm"),
        TextDelta("a"),
        Used(Usage(input_tokens=3, output_tokens=2, requests=1)),
        Finish("stop"),
    ]


@pytest.mark.parametrize(
    "thought", [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"reasoning_content": "hm", "reasoning": "hm"}]
)
def test_both_names_of_reasoning_are_read(thought: dict[str, str]) -> None:
    message = message_of(delta(**thought), delta("stop", content="a"))
    assert message.content == (Reasoning("hm"), Text("a"))


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                part(0, "a", "f", ""),
                part(1, "b", "g", ""),
                part(0, arguments='{"x"'),
                part(1, arguments="{}"),
                part(0, arguments=":1}"),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
            id="interleaved by index",
        ),
        pytest.param(
            [part(0, "a", "f", "{}"), part(1, "b", "f", "{}")], [("a", "f", "{}"), ("b", "f", "{}")], id="whole calls"
        ),
        pytest.param(
            [part(None, "a", "f", '{"x"'), part(None, arguments=":1}"), part(None, "b", "g", "{}")],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
            id="no index",
        ),
        pytest.param(
            [part(0, "a", "f", "{}"), part(0, "b", "f", "{}")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="one index for all",
        ),
        pytest.param(
            [part(0, "x", "f", "{}"), part(1, "x", "g", "{}")],
            [("x", "f", "{}"), ("x_1", "g", "{}")],
            id="one id for all",
        ),
        pytest.param(
            [part(None, None, "f", "{}"), part(None, None, "f", "{}")],
            [("call_0", "f", "{}"), ("call_1", "f", "{}")],
            id="no index, no id",
        ),
        pytest.param(
            [part(None, "", "f", ""), part(None, "", "g", "")],
            [("call_0", "f", ""), ("call_1", "g", "")],
            id="no arguments at all",
        ),
        pytest.param(
            [part(0, "", "f", "{}"), part(1, "", "g", "{}")],
            [("call_0", "f", "{}"), ("call_1", "g", "{}")],
            id="empty ids",
        ),
        pytest.param([part(0, "a"), part(0, None, "f"), part(0, arguments="{}")], [("a", "f", "{}")], id="name later"),
        pytest.param([part(0, None, "f", "{"), part(0, "a", None, "}")], [("a", "f", "{}")], id="id later"),
        pytest.param(
            [part(0, "a", "f", '{"x"'), part(0, "a", "f", ":1"), part(0, "a", "f", "}")],
            [("a", "f", '{"x":1}')],
            id="id and name in every delta",
        ),
        pytest.param(
            [part(0, "a", "f", '{"x"'), part(0, "b", None, ":1}")],
            [("a", "f", '{"x":1}')],
            id="another id in every delta",
        ),
        pytest.param([part(0, "a", "f", {"x": [1]})], [("a", "f", '{"x":[1]}')], id="arguments as object"),
        pytest.param(
            [part(7, "a", "f", "{}"), part(3, "b", "g", "{}")], [("a", "f", "{}"), ("b", "g", "{}")], id="odd indices"
        ),
        pytest.param([part(0, "a", "f", ""), part(0, "a", "f", "")], [("a", "f", "")], id="repeated without arguments"),
    ],
)
def test_calls_are_told_apart(deltas: list[dict[str, Any]], expected: list[tuple[str, str, str]]) -> None:
    assert calls_of(*deltas) == expected


def test_the_older_function_call_is_a_call() -> None:
    events = [delta(function_call={"name": "f", "arguments": ""}), delta(function_call={"arguments": "{}"})]
    assert message_of(*events, delta("function_call")).calls == (ToolCall("call_0", "f", "{}"),)


def test_a_thought_signature_of_a_call_is_kept_as_reasoning() -> None:
    call = part(0, "a", "f", "{}") | {"extra_content": {"google": {"thought_signature": "proof"}}}
    assert message_of(delta(tool_calls=[call]), delta("tool_calls")).content == (
        Reasoning("", "proof"),
        ToolCall("a", "f", "{}"),
    )


@pytest.mark.parametrize(
    ("reason", "with_call", "finish"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool-calls"),
        ("tool_calls", True, "tool-calls"),
        ("tool_calls", False, "stop"),
        ("function_call", True, "tool-calls"),
        ("length", True, "length"),
        ("max_tokens", False, "length"),
        ("content_filter", True, "content-filter"),
        ("eos", False, "stop"),
        ("eos", True, "tool-calls"),
    ],
)
def test_finish_reasons_are_mapped(reason: str, with_call: bool, finish: str) -> None:
    call = [delta(tool_calls=[part(0, "a", "f", "{}")])] if with_call else []
    assert chunks_of(delta(content="a"), *call, delta(reason))[-1] == Finish(finish)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_finish_reason_that_means_failure_is_a_server_error(reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        chunks_of(delta(content="a"), delta(reason))
    assert caught.value.kind == "server"


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(input_tokens=9, output_tokens=4, requests=1)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 3},
                "cost": 0.5,
            },
            Usage(input_tokens=9, output_tokens=4, cached_tokens=5, reasoning_tokens=3, requests=1, cost_usd=0.5),
        ),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8, "prompt_tokens_details": None},
            Usage(input_tokens=9, cached_tokens=8, requests=1),
        ),
        ({"prompt_tokens": 9, "prompt_tokens_details": {}}, Usage(input_tokens=9, requests=1)),
    ],
)
def test_usage_is_read_in_every_dialect(wire: dict[str, Any], usage: Usage) -> None:
    end = delta("stop", content="a")
    assert Used(usage) in chunks_of(end, {"choices": [], "usage": wire})
    assert Used(usage) in chunks_of(end | {"usage": wire})
    assert Used(usage) in chunks_of({"choices": [end["choices"][0] | {"usage": wire}]})


def test_usage_that_repeats_is_said_once() -> None:
    usage = {"usage": {"prompt_tokens": 1}}
    got = chunks_of(delta(content="a") | usage, delta(content="b") | usage, delta("stop") | usage)
    assert [type(c) for c in got] == [TextDelta, Used, TextDelta, Finish]


def test_a_whole_reply_gives_the_chunks_of_a_stream() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    chunks: list[Chunk] = []
    reader = ReplyReader(chunks.append, "test")
    reader.whole(json.dumps(reply_of("tool_calls", content="x", reasoning="hm", tool_calls=calls)).encode())
    reader.end()
    assert chunks == [
        ReasoningDelta("hm"),
        TextDelta("x"),
        CallStart(0, "a", "f"),
        CallDelta(0, "{}"),
        Finish("tool-calls"),
    ]


def test_a_whole_reply_needs_no_finish_reason() -> None:
    chunks: list[Chunk] = []
    reader = ReplyReader(chunks.append, "test")
    reader.whole(json.dumps(reply_of(None, content="x")).encode())
    reader.end()
    assert chunks == [TextDelta("x"), Finish("stop")]


def test_content_in_parts_is_text() -> None:
    assert (
        message_of(delta("stop", content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).text == "ab"
    )


def test_a_refusal_is_text() -> None:
    assert message_of(delta("stop", content=None, refusal="no")).text == "no"


def test_other_choices_and_unknown_fields_are_ignored() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None, "new": {}}], "x": [1]}
    assert message_of(other, delta("stop", content="a")).text == "a"


def test_a_reply_without_finish_reason_was_cut() -> None:
    with pytest.raises(ModelError) as caught:
        chunks_of(delta(content="half a sen"), "[DONE]")
    assert caught.value.kind == "transport"


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "eos"])
def test_a_reply_of_nothing_is_an_empty_response(reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        chunks_of(delta(role="assistant", content=""), delta(reason))
    assert caught.value.kind == "empty-response"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_limit_or_filter_that_left_nothing_is_no_empty_response(reason: str) -> None:
    assert [type(c) for c in chunks_of(delta(reason))] == [Finish]


def test_reasoning_alone_is_no_empty_response() -> None:
    assert chunks_of(delta("stop", reasoning="hm"))[-1] == Finish("stop")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"error": {"message": "busy now", "code": 503}}, "server"),
        ({"error": {"message": "busy now", "code": "429"}}, "rate-limit"),
        ({"error": {"message": "busy now", "type": "overloaded_error"}}, "server"),
        ({"error": "busy now"}, "server"),
        ({"error": {"message": "busy now", "type": "invalid_request_error", "code": None}}, "bad-request"),
        ({"object": "error", "message": "busy now", "code": 400}, "bad-request"),
        ({"error": {"message": "busy now: maximum context length is 8 tokens", "code": 400}}, "context-length"),
        (
            {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "busy now"}}]},
            "server",
        ),
        ([{"error": {"message": "busy now", "code": 503, "status": "UNAVAILABLE"}}], "server"),
    ],
)
def test_an_error_inside_a_stream_is_raised(event: Any, kind: str) -> None:
    with pytest.raises(ModelError, match="busy now") as caught:
        chunks_of(delta(content="a"), event)
    assert caught.value.kind == kind


@pytest.mark.parametrize("data", ["<html>", "{", '"text"', '{"choices": 3}', "[" * 100_000])
def test_what_is_no_reply_is_a_server_error(data: str) -> None:
    with pytest.raises(ModelError, match="no chat completion") as caught:
        chunks_of(data)
    assert caught.value.kind == "server"
    assert len(str(caught.value)) < 1000


def test_halves_of_a_character_are_joined_and_lone_ones_replaced() -> None:
    halves = [delta(content="a \ud83d"), delta(content="\ude00 b"), delta(content=" \ud83d there"), delta("stop")]
    assert message_of(*halves).content == (Text("a \U0001f600 b \ufffd there"),)


def test_halves_of_a_character_in_arguments_are_joined() -> None:
    parts = [part(0, "i", "f", '{"a": "\ud83d'), part(0, arguments='\ude00"}')]
    assert calls_of(*parts) == [("i", "f", '{"a": "\U0001f600"}')]
    assert calls_of(part(0, "i", "f", {"a": "\ud83d"})) == [("i", "f", '{"a": "\ufffd"}')]
