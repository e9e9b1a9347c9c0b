"""How replies end: streams that are cut anywhere, and servers that have said all and still hold the connection."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from retinue.base.ids import MessageId
from retinue.errors import ModelError
from retinue.model.adapters.anthropic import anthropic_client
from retinue.model.adapters.openai_chat import openai_chat_client
from retinue.model.adapters.transport import Timeouts
from retinue.model.adapters.wire_client import WireClient
from retinue.model.assemble import Assembler
from retinue.model.client import ModelRequest
from retinue.model.content import Text, Usage, UserMessage
from retinue.model.retry import RetryPolicy
from tests.support.model_server import Answer, Exchange, delta, event, model_server

OPENAI = [
    event(delta(role="assistant", content="hel")),
    event(delta(content="lo")),
    event(delta("stop")),
    event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
    event("[DONE]"),
]
ANTHROPIC = [
    event({"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}),
    event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
    event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
    event({"type": "message_stop"}),
]
USAGE = Usage(input_tokens=10, output_tokens=5, requests=1)
Make = Callable[..., WireClient]


def openai(url: str, **options: Any) -> WireClient:
    return openai_chat_client(provider="test", base_url=url, **options)


def anthropic(url: str, **options: Any) -> WireClient:
    return anthropic_client(provider="test", base_url=url.removesuffix("/v1"), **options)


@asynccontextmanager
async def client_at(make: Make, answer: Answer, **options: Any) -> AsyncGenerator[WireClient]:
    async with model_server(answer) as server:
        client = make(server.url, **options)
        try:
            yield client
        finally:
            await client.aclose()


async def ask(client: WireClient) -> Assembler:
    reply = Assembler()
    transcript = client.transcript()
    transcript.extend([UserMessage(MessageId("m"), (Text("hi"),))])
    request = ModelRequest(model="m", system="", tools=(), transcript=transcript)
    await client.stream(request, client.encode(request), reply.feed)
    return reply


def end_of(events: list[bytes], number: int) -> int:
    """Where the last byte of that event's data is."""
    return len(b"".join(events[: number + 1]).rstrip())


@pytest.mark.parametrize(
    ("make", "events", "finish", "usage"),
    [pytest.param(openai, OPENAI, 2, 3, id="openai"), pytest.param(anthropic, ANTHROPIC, 3, 3, id="anthropic")],
)
async def test_a_stream_that_was_cut_at_any_byte_is_whole_from_the_finish_reason_on_and_tried_again_before(
    make: Make, events: list[bytes], finish: int, usage: int
) -> None:
    stream = b"".join(events)
    cut = 0

    async def answer(exchange: Exchange) -> None:
        await exchange.until_closed(stream[:cut])

    async with client_at(make, answer) as client:
        for cut in range(len(stream) + 1):
            if cut < end_of(events, finish):
                with pytest.raises(ModelError) as caught:
                    await ask(client)
                assert caught.value.kind in RetryPolicy().kinds, cut
                continue
            reply = await ask(client)
            assert (reply.message().text, reply.finish) == ("hello", "stop"), cut
            assert reply.usage == (USAGE if cut >= end_of(events, usage) else None), cut


@pytest.mark.parametrize(("make", "events"), [(openai, OPENAI[:3]), (anthropic, ANTHROPIC[:4])])
async def test_a_server_that_says_nothing_after_the_finish_reason_is_not_waited_for_long(
    make: Make, events: list[bytes]
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b"".join(events))
        await exchange.client_left()

    async with client_at(make, answer, timeouts=Timeouts(rest_s=0.05)) as client:
        with anyio.fail_after(30):
            reply = await ask(client)
    assert (reply.message().text, reply.finish) == ("hello", "stop")


@pytest.mark.parametrize(("make", "events"), [(openai, OPENAI[:3]), (anthropic, ANTHROPIC[:4])])
async def test_signs_of_life_after_the_finish_reason_do_not_make_the_wait_longer(
    make: Make, events: list[bytes]
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b"".join(events))
        while True:
            await exchange.send(b": alive\n\n")
            await anyio.lowlevel.checkpoint()

    async with client_at(make, answer, timeouts=Timeouts(rest_s=0.05)) as client:
        with anyio.fail_after(30):
            reply = await ask(client)
    assert (reply.message().text, reply.finish) == ("hello", "stop")
