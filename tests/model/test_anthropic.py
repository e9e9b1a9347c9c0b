"""The Anthropic client against a server on this machine: replies, refusals, cuts, and what it sends back."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import MessageId
from retinue.errors import BadInput, ConfigError, ModelError
from retinue.model.adapters.anthropic import VERSION, anthropic_client
from retinue.model.adapters.openai_chat import openai_chat_client
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.wire_client import WireClient
from retinue.model.assemble import Assembler
from retinue.model.client import ModelRequest, ToolSpec
from retinue.model.content import (
    AssistantMessage,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from retinue.model.prices import Price
from tests.support.model_server import Answer, Exchange, ModelServer, event, model_server

KEY = "sk-ant-hidden"
PNG = Image("image/png", "aGk=")


def client_of(url: str = "http://127.0.0.1:9", **options: Any) -> WireClient:
    return anthropic_client(provider="anthropic", base_url=url.removesuffix("/v1"), api_key=KEY, **options)


def user(*content: Text | Image) -> UserMessage:
    return UserMessage(MessageId("m"), content or (Text("hi"),))


def body(*messages: Message, of: WireClient | None = None, **fields: Any) -> dict[str, Any]:
    client = of or client_of()
    transcript = client.transcript()
    transcript.extend(messages)
    request = ModelRequest(**({"model": "m", "system": "", "tools": (), "transcript": transcript} | fields))
    return json.loads(b"".join(client.encode(request)))


def wire(*messages: Message) -> list[Any]:
    return body(*messages, of=client_of(is_cached=False))["messages"]


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": usage}}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    opened = {"type": "content_block_start", "index": index, "content_block": content}
    parts = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [opened, *parts, {"type": "content_block_stop", "index": index}]


def text_block(index: int, *texts: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def stop(reason: str, **usage: int) -> list[dict[str, Any]]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {value['type']}\n".encode() + event(value) for value in events)


class Setup:
    def __init__(self, server: ModelServer, client: WireClient) -> None:
        self.server = server
        self.client = client
        self.reply = Assembler()

    async def ask(self, model: str = "m") -> AssistantMessage:
        transcript = self.client.transcript()
        transcript.extend([user()])
        request = ModelRequest(model=model, system="", tools=(), transcript=transcript)
        await self.client.stream(request, self.client.encode(request), self.reply.feed)
        return self.reply.message()

    async def failure(self) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.ask()
        assert KEY not in str(caught.value)
        return caught.value


@asynccontextmanager
async def setup(answer: Answer | bytes, **options: Any) -> AsyncGenerator[Setup]:
    async def play(exchange: Exchange) -> None:
        assert isinstance(answer, bytes)
        await exchange.events(answer)

    async with model_server(play if isinstance(answer, bytes) else answer) as server:
        client = client_of(server.url, **options)
        try:
            yield Setup(server, client)
        finally:
            await client.aclose()


# What arrives


async def test_text_arrives_with_usage_that_counts_what_the_cache_gave() -> None:
    said = stream(
        start(input_tokens=10, cache_creation_input_tokens=20, cache_read_input_tokens=30, output_tokens=1),
        {"type": "ping"},
        *text_block(0, "hel", "lo"),
        *stop("end_turn", output_tokens=5),
    )
    async with setup(said) as at:
        message = await at.ask()
        sent = at.server.exchanges[0]
    assert (message.text, at.reply.finish) == ("hello", "stop")
    assert at.reply.usage == Usage(
        input_tokens=60, output_tokens=5, cached_tokens=30, cache_write_tokens=20, requests=1
    )
    assert (sent.method, sent.path) == ("POST", "/v1/messages")
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (KEY, VERSION)


async def test_usage_costs_what_the_price_says() -> None:
    said = stream(
        start(input_tokens=1000, cache_creation_input_tokens=100, cache_read_input_tokens=200),
        *text_block(0, "x"),
        *stop("end_turn", output_tokens=10),
    )
    async with setup(said, price=lambda _: Price(3, 15, 0.3, 3.75)) as at:
        await at.ask()
    assert at.reply.usage is not None
    assert at.reply.usage.cost_usd is not None
    assert at.reply.usage.cost_usd == pytest.approx((1000 * 3 + 100 * 3.75 + 200 * 0.3 + 10 * 15) / 1e6)


async def test_thinking_comes_back_with_its_proof_and_before_the_call() -> None:
    said = stream(
        start(input_tokens=1),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "let me "},
            {"type": "thinking_delta", "thinking": "see"},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
        *block(
            2, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "signature_delta", "signature": "bW9yZQ"}
        ),
        *text_block(3, "looking"),
        *block(
            4,
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"path":'},
            {"type": "input_json_delta", "partial_json": '"a"}'},
        ),
        *stop("tool_use", output_tokens=5),
    )
    async with setup(said) as at:
        message = await at.ask()
    assert at.reply.finish == "tool-calls"
    assert message.calls == (ToolCall("toolu_1", "read", '{"path":"a"}'),)
    assert wire(user(), message)[1]["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "thinking", "thinking": "", "signature": "bW9yZQ"},
        {"type": "text", "text": "looking"},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
    ]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content-filter"),
        ("something_new", "stop"),
    ],
)
async def test_each_stop_reason_means_one_finish(reason: str, finish: str) -> None:
    async with setup(stream(start(), *text_block(0, "x"), *stop(reason))) as at:
        await at.ask()
    assert at.reply.finish == finish


async def test_a_call_that_was_cut_off_is_no_call() -> None:
    call = block(
        0,
        {"type": "tool_use", "id": "a", "name": "read", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"pa'},
    )
    async with setup(stream(start(), *call, *stop("max_tokens"))) as at:
        message = await at.ask()
    assert (message.calls, at.reply.finish) == ((), "length")


async def test_a_refusal_without_words_is_an_answer() -> None:
    async with setup(stream(start(), *stop("refusal"))) as at:
        await at.ask()
    assert at.reply.finish == "content-filter"


async def test_an_empty_reply_is_tried_again() -> None:
    async with setup(stream(start(), *stop("end_turn"))) as at:
        assert (await at.failure()).kind == "empty-response"


async def test_a_whole_reply_reads_like_a_stream() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.whole(
            {
                "type": "message",
                "content": [
                    {"type": "text", "text": "hello"},
                    {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 1, "output_tokens": 2},
            }
        )

    async with setup(answer) as at:
        message = await at.ask()
    assert message == AssistantMessage((Text("hello"), ToolCall("a", "read", '{"path":"x"}')))
    assert at.reply.usage == Usage(input_tokens=1, output_tokens=2, requests=1)


async def test_blocks_and_events_that_are_not_known_are_passed_over() -> None:
    said = stream(
        start(),
        *block(0, {"type": "server_tool_use", "id": "x", "name": "web", "input": {}}),
        {"type": "something_new", "index": 1},
        *text_block(1, "answer"),
        *stop("end_turn"),
    )
    async with setup(said) as at:
        assert (await at.ask()).content == (Text("answer"),)


# What goes wrong


@pytest.mark.parametrize(
    ("status", "kind", "said", "expected"),
    [
        (529, "overloaded_error", "Overloaded", "server"),
        (500, "api_error", "Internal server error", "server"),
        (429, "rate_limit_error", "slow down", "rate-limit"),
        (401, "authentication_error", "invalid x-api-key", "auth"),
        (403, "permission_error", "not allowed", "auth"),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "context-length"),
        (400, "invalid_request_error", "tools: unknown field", "bad-request"),
        (413, "request_too_large", "Request exceeds the maximum size", "bad-request"),
    ],
)
async def test_each_refusal_has_its_kind(status: int, kind: str, said: str, expected: str) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.whole({"type": "error", "error": {"type": kind, "message": said}}, status, retry_after="7")

    async with setup(answer) as at:
        error = await at.failure()
    assert (error.kind, error.status, error.retry_after_s) == (expected, status, 7.0)
    assert said in str(error)


async def test_an_overload_in_the_middle_of_a_stream_is_an_error_of_the_server() -> None:
    said = stream(
        start(),
        *text_block(0, "hal"),
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    )
    async with setup(said) as at:
        error = await at.failure()
    assert (error.kind, error.status) == ("server", 529)


async def test_a_stream_that_ends_without_a_stop_reason_was_cut() -> None:
    async with setup(stream(start(), *text_block(0, "hal"))) as at:
        assert (await at.failure()).kind == "transport"


async def test_a_cut_after_the_stop_reason_spoils_nothing() -> None:
    async with setup(stream(start(), *text_block(0, "all"), stop("end_turn")[0])) as at:
        assert (await at.ask()).text == "all"


async def test_what_is_no_event_is_shown() -> None:
    async with setup(b"data: <html>gateway " + KEY.encode() + b"</html>\n\n") as at:
        error = await at.failure()
    assert error.kind == "server"
    assert "gateway" in str(error)


async def test_cancelling_closes_the_connection() -> None:
    left = anyio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(stream(start(), *text_block(0, "hal")))
        await exchange.client_left()
        left.set()

    async with setup(answer) as at:
        with anyio.CancelScope() as scope:
            at.reply.reset()

            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    while not at.reply.has_content:
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                tasks.start_soon(cancel)
                await at.ask()
        with anyio.fail_after(5):
            await left.wait()
    assert scope.cancelled_caught


# What is sent


def test_roles_alternate_and_results_come_before_words() -> None:
    sent = wire(
        user(Text("a")),
        user(Text("b"), PNG),
        AssistantMessage((ToolCall("x", "read", "{}"), ToolCall("y", "read", ""))),
        ToolMessage("x", (Text("1"), PNG)),
        ToolMessage("y", (), is_error=True),
        user(Text("c")),
    )
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "x", "name": "read", "input": {}},
                {"type": "tool_use", "id": "y", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "1"}, image]},
                {"type": "tool_result", "tool_use_id": "y", "is_error": True},
                {"type": "text", "text": "c"},
            ],
        },
    ]


def test_ids_that_repeat_or_hold_other_letters_are_given_anew_and_results_follow() -> None:
    step = (AssistantMessage((ToolCall("call.0", "my tool", "{}"),)), ToolMessage("call.0", (Text("r"),)))
    sent = wire(user(), *step, *step)
    calls = [part for message in sent for part in message["content"] if part["type"] == "tool_use"]
    results = [part for message in sent for part in message["content"] if part["type"] == "tool_result"]
    assert [call["id"] for call in calls] == ["call_0", "call_0_2"]
    assert [result["tool_use_id"] for result in results] == ["call_0", "call_0_2"]
    assert calls[0]["name"] == "my_tool"


def test_arguments_that_are_no_object_are_shown_to_the_model_as_they_were() -> None:
    sent = wire(user(), AssistantMessage((ToolCall("x", "read", '{"path": '),)))
    assert sent[1]["content"][0]["input"] == {"invalid_json": '{"path": '}


def test_reasoning_of_others_stays_at_home_on_both_sides() -> None:
    reply = AssistantMessage(
        (Reasoning("mine", "anthropic:c2ln"), Reasoning("theirs", "Z2VtaW5p"), Reasoning("plain"), Text("x"))
    )
    assert [part["type"] for part in wire(user(), reply)[1]["content"]] == ["thinking", "text"]
    gemini = openai_chat_client(provider="g", base_url="http://127.0.0.1:9", quirks=Quirks(call_signatures=True))
    transcript = gemini.transcript()
    transcript.extend([AssistantMessage((Reasoning("mine", "anthropic:c2ln"), ToolCall("x", "read", "{}")))])
    request = ModelRequest(model="m", system="", tools=(), transcript=transcript)
    assert b"c2ln" not in b"".join(gemini.encode(request))


def test_blank_text_is_left_out_and_so_is_what_it_leaves_empty() -> None:
    assert wire(user(Text("a")), AssistantMessage((Text(" \n"),)), user(Text("b"), Text(""))) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


def test_the_cache_reaches_to_the_end_of_the_prompt_and_to_the_newest_block() -> None:
    tool = ToolSpec(name="read", description="Reads.", parameters={"type": "object"})
    sent = body(user(Text("a")), AssistantMessage((Text("b"),)), user(Text("c")), system="be brief", tools=(tool,))
    mark = {"type": "ephemeral"}
    assert sent["system"] == [{"type": "text", "text": "be brief", "cache_control": mark}]
    assert sent["tools"] == [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}]
    assert sent["messages"][-1]["content"] == [{"type": "text", "text": "c", "cache_control": mark}]
    assert json.dumps(sent).count("cache_control") == 2


def test_the_number_of_output_tokens_is_always_said() -> None:
    known = client_of(output_ceiling={"m": 64_000}.get)
    assert body(user())["max_tokens"] == 32_000
    assert body(user(), of=known)["max_tokens"] == 64_000
    assert body(user(), of=known, max_tokens=10)["max_tokens"] == 10


def test_options_are_sent_unless_the_client_owns_the_field() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert body(user(), options={"thinking": thinking})["thinking"] == thinking
    with pytest.raises(ConfigError, match="'system'.*not free"):
        body(user(), options={"system": "x"})


def test_a_transcript_of_another_client_is_refused() -> None:
    other = openai_chat_client(provider="o", base_url="http://127.0.0.1:9").transcript()
    with pytest.raises(BadInput, match="ChatTranscript"):
        client_of().encode(ModelRequest(model="m", system="", tools=(), transcript=other))


_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=8)
_INPUT = st.lists(st.builds(Text, _TEXT) | st.just(PNG), max_size=3).map(tuple)
_MESSAGES = st.lists(
    st.builds(UserMessage, st.just(MessageId("m")), _INPUT)
    | st.builds(
        AssistantMessage,
        st.lists(
            st.builds(Text, _TEXT)
            | st.builds(Reasoning, _TEXT, st.none() | st.just("anthropic:cA"))
            | st.builds(ToolCall, _TEXT, _TEXT, _TEXT | st.just('{"a": 1}')),
            max_size=4,
        ).map(tuple),
    )
    | st.builds(ToolMessage, _TEXT, _INPUT),
    max_size=8,
)


@given(messages=_MESSAGES, system=_TEXT, data=st.data())
def test_a_transcript_grown_in_steps_equals_one_made_at_once(
    messages: list[Message], system: str, data: st.DataObject
) -> None:
    client = client_of()
    grown, at_once = client.transcript(), client.transcript()
    at_once.extend(messages)
    rest = messages
    while rest:
        n = data.draw(st.integers(1, len(rest)))
        grown.extend(rest[:n])
        client.encode(ModelRequest(model="m", system=system, tools=(), transcript=grown))
        rest = rest[n:]
    bodies = [
        b"".join(client.encode(ModelRequest(model="m", system=system, tools=(), transcript=transcript)))
        for transcript in (grown, at_once)
    ]
    assert bodies[0] == bodies[1]
    sent = json.loads(bodies[0])["messages"]
    roles = [message["role"] for message in sent]
    assert all(a != b for a, b in zip(roles, roles[1:], strict=False))
    ids = [part["id"] for message in sent for part in message["content"] if part["type"] == "tool_use"]
    assert len(ids) == len(set(ids))
