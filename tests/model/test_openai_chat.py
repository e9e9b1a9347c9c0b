"""The client against a server on this machine: streams, refusals, silence, cuts and cancellation."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from retinue.base.ids import MessageId
from retinue.errors import ConfigError, ModelError
from retinue.model.adapters.openai_chat import openai_chat_client
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.transport import Timeouts, is_loopback
from retinue.model.adapters.wire_client import WireClient
from retinue.model.chunks import Chunk, Finish, TextDelta, Used
from retinue.model.client import ModelClient, ModelRequest
from retinue.model.content import Text, Usage, UserMessage
from tests.support.model_server import Answer, Exchange, ModelServer, delta, event, model_server, reply_of, stream_of

KEY = "sk-hidden"
HELLO = [delta(role="assistant", content=""), delta(content="hel"), delta(content="lo"), delta("stop")]
USAGE = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}


class Setup:
    def __init__(self, server: ModelServer, client: ModelClient) -> None:
        self.server = server
        self.client = client
        self.chunks: list[Chunk] = []

    async def ask(self, text: str = "hi", sink: Callable[[Chunk], None] | None = None) -> None:
        transcript = self.client.transcript()
        transcript.extend([UserMessage(MessageId("m"), (Text(text),))])
        request = ModelRequest(model="m", system="", tools=(), transcript=transcript)
        await self.client.stream(request, self.client.encode(request), sink or self.chunks.append)

    async def failure(self) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.ask()
        assert KEY not in str(caught.value)
        return caught.value


@asynccontextmanager
async def setup(answer: Answer, **options: Any) -> AsyncGenerator[Setup]:
    async with model_server(answer) as server:
        client = client_of(server.url, **options)
        try:
            yield Setup(server, client)
        finally:
            await client.aclose()


def client_of(url: str, **options: Any) -> WireClient:
    return openai_chat_client(provider="test", base_url=url, api_key=KEY, **options)


async def hello(exchange: Exchange) -> None:
    await exchange.events(stream_of([*HELLO, USAGE]))


async def test_a_streamed_reply_arrives_as_chunks() -> None:
    async with setup(hello) as at:
        await at.ask("hé")
        sent = at.server.exchanges[0]
    usage = Usage(input_tokens=10, output_tokens=5, requests=1)
    assert at.chunks == [TextDelta("hel"), TextDelta("lo"), Used(usage), Finish("stop")]
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.json["messages"] == [{"role": "user", "content": "hé"}]


async def test_a_whole_reply_arrives_as_the_same_chunks() -> None:
    async def answer(exchange: Exchange) -> None:
        assert exchange.json["stream"] is False
        await exchange.whole(reply_of("stop", content="hello") | {"usage": USAGE["usage"]})

    async with setup(answer, quirks=Quirks(stream=False)) as at:
        await at.ask()
    usage = Usage(input_tokens=10, output_tokens=5, requests=1)
    assert at.chunks == [TextDelta("hello"), Used(usage), Finish("stop")]


async def test_a_server_that_ignores_the_wish_to_stream_is_understood() -> None:
    async with setup(lambda exchange: exchange.whole(reply_of("stop", content="hello"))) as at:
        await at.ask()
    assert at.chunks == [TextDelta("hello"), Finish("stop")]


async def test_a_whole_reply_is_understood_whatever_its_media_type() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(content_type="text/plain")
        await exchange.send(json.dumps(reply_of("stop", content="hello")).encode())
        await exchange.end()

    async with setup(answer, quirks=Quirks(stream=False)) as at:
        await at.ask()
    assert at.chunks == [TextDelta("hello"), Finish("stop")]


async def test_chunks_are_passed_on_while_the_reply_still_streams() -> None:
    seen = anyio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(event(HELLO[1]))
        await seen.wait()
        await exchange.send(stream_of(HELLO[2:]))
        await exchange.end()

    async with setup(answer) as at:
        await at.ask(sink=lambda chunk: seen.set() if chunk == TextDelta("hel") else None)


async def test_a_character_cut_in_two_arrives_whole() -> None:
    data = stream_of([delta(content="x")]).replace(b'"x"', '"ü€😀"'.encode()).replace(b"data: [DONE]\n\n", b"")

    async def answer(exchange: Exchange) -> None:
        await exchange.events(*(data[i : i + 1] for i in range(len(data))), stream_of([delta("stop")]))

    async with setup(answer) as at:
        await at.ask()
    assert at.chunks[0] == TextDelta("ü€😀")


async def test_connections_are_kept_between_requests() -> None:
    async with setup(hello) as at:
        for _ in range(3):
            await at.ask()
        assert at.server.connections == 1


async def test_many_requests_run_at_once() -> None:
    arrived = 0
    all_here = anyio.Event()

    async def answer(exchange: Exchange) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 150:
            all_here.set()
        await all_here.wait()
        await hello(exchange)

    async with setup(answer) as at, anyio.create_task_group() as tasks:
        for _ in range(150):
            tasks.start_soon(at.ask)


async def test_a_large_request_is_sent_whole_and_without_a_warning() -> None:
    text = "ü" * 3_000_000
    async with setup(hello) as at:
        await at.ask(text)
        assert at.server.exchanges[0].json["messages"][0]["content"] == text


async def test_a_refusal_carries_kind_words_and_delay() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.whole({"error": {"message": f"slow down, {KEY}"}}, 429, Retry_After="7")

    async with setup(answer) as at:
        error = await at.failure()
    assert (error.kind, error.status, error.retry_after_s) == ("rate-limit", 429, 7.0)
    assert "slow down" in str(error)


async def test_secrets_in_extra_headers_are_not_repeated_either() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.whole({"error": {"message": f"bad {exchange.headers['api-key']}"}}, 401)

    async with setup(answer, headers={"api-key": "another-secret"}) as at:
        assert "another-secret" not in str(await at.failure())


async def test_an_error_in_the_stream_comes_after_what_was_said() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.events(event(HELLO[1]), event({"error": {"message": "overloaded", "code": 503}}))

    async with setup(answer) as at:
        error = await at.failure()
    assert error.kind == "server"
    assert at.chunks == [TextDelta("hel")]


async def test_a_stream_that_is_cut_is_a_transport_error() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(event(HELLO[1]))
        await exchange.stream.aclose()

    async with setup(answer) as at:
        error = await at.failure()
    assert error.kind == "transport"
    assert error.__cause__ is not None
    assert at.chunks == [TextDelta("hel")]


async def test_a_stream_that_ends_without_finish_reason_is_a_transport_error() -> None:
    async with setup(lambda exchange: exchange.events(event(HELLO[1]))) as at:
        assert (await at.failure()).kind == "transport"


async def test_a_cut_after_the_finish_reason_spoils_nothing() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b"".join(event(value) for value in HELLO))
        await exchange.stream.aclose()

    async with setup(answer) as at:
        await at.ask()
    assert at.chunks[-1] == Finish("stop")


async def test_a_connection_left_open_after_the_end_is_closed() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(stream_of(HELLO))
        await exchange.client_left()
        left.set()

    left = anyio.Event()
    async with setup(answer) as at:
        await at.ask()
        await left.wait()
    assert at.chunks[-1] == Finish("stop")


async def test_a_last_event_without_blank_line_counts() -> None:
    async with setup(lambda exchange: exchange.events(b"".join(event(v) for v in HELLO).removesuffix(b"\n\n"))) as at:
        await at.ask()
    assert at.chunks[-1] == Finish("stop")


async def test_a_server_that_closes_without_an_answer_is_a_transport_error() -> None:
    async with setup(lambda exchange: exchange.stream.aclose()) as at:
        error = await at.failure()
    assert error.kind == "transport"
    assert f"127.0.0.1:{at.server.port}" in str(error)


async def test_an_answer_that_is_no_http_is_a_transport_error() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.stream.send(b"SSH-2.0-x\r\n\r\n")
        await exchange.stream.aclose()

    async with setup(answer) as at:
        assert (await at.failure()).kind == "transport"


async def test_cancelling_before_the_answer_closes_the_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        arrived.set()
        await exchange.client_left()
        left.set()

    arrived, left = anyio.Event(), anyio.Event()
    async with setup(answer) as at, anyio.create_task_group() as tasks:
        tasks.start_soon(at.ask)
        await arrived.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await left.wait()


async def test_cancelling_inside_the_answer_closes_the_connection_and_keeps_what_was_said() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(event(HELLO[1]))
        await exchange.client_left()
        left.set()

    said, left = anyio.Event(), anyio.Event()

    def sink(chunk: Chunk) -> None:
        at.chunks.append(chunk)
        said.set()

    async with setup(answer) as at, anyio.create_task_group() as tasks:
        tasks.start_soon(at.ask, "hi", sink)
        await said.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await left.wait()
    assert at.chunks == [TextDelta("hel")]


async def test_a_sink_that_fails_closes_the_connection_and_its_error_is_untouched() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(event(HELLO[1]))
        await exchange.client_left()
        left.set()

    def sink(_: Chunk) -> None:
        raise OSError("disk full")

    left = anyio.Event()
    async with setup(answer) as at:
        with pytest.raises(OSError, match="disk full"):
            await at.ask(sink=sink)
        await left.wait()


async def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    async with setup(lambda exchange: exchange.client_left(), timeouts=Timeouts(first_byte_s=0.05)) as at:
        error = await at.failure()
    assert error.kind == "timeout"
    assert f"127.0.0.1:{at.server.port}" in str(error)


async def test_a_server_that_falls_silent_is_a_timeout() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(event(HELLO[1]))
        await exchange.client_left()

    async with setup(answer, timeouts=Timeouts(idle_s=0.05)) as at:
        assert (await at.failure()).kind == "timeout"
    assert at.chunks == [TextDelta("hel")]


async def test_nothing_listening_is_said_with_the_address() -> None:
    async with model_server(hello) as server:
        url = server.url
    client = client_of(url)
    error = await Setup(server, client).failure()
    await client.aclose()
    assert error.kind == "transport"
    assert f"nothing listens at 127.0.0.1:{server.port}" in str(error)


async def test_plain_text_where_tls_was_expected_is_a_transport_error() -> None:
    async def refuse(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        client = client_of(f"https://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1")
        error = await Setup(ModelServer(0, hello), client).failure()
        await client.aclose()
        assert error.kind == "transport"
        assert "base_url" in str(error)
        tasks.cancel_scope.cancel()


async def test_a_host_without_address_is_a_transport_error() -> None:
    client = client_of("http://name.invalid/v1", timeouts=Timeouts(connect_s=2))
    with pytest.raises(ModelError, match=r"name\.invalid"):
        await Setup(ModelServer(0, hello), client).ask()
    await client.aclose()


async def test_a_redirect_is_not_followed() -> None:
    async def other(exchange: Exchange) -> None:
        raise AssertionError("the key went to another host")

    async with model_server(other) as target:

        async def answer(exchange: Exchange) -> None:
            await exchange.head(307, Location=f"{target.url}/chat/completions")
            await exchange.end()

        async with setup(answer) as at:
            error = await at.failure()
    assert error.kind == "bad-request"
    assert "redirects" in str(error)


@pytest.mark.parametrize("trust_env", [False, True])
async def test_proxy_variables_never_apply_to_this_machine(monkeypatch: pytest.MonkeyPatch, trust_env: bool) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with setup(hello, trust_env=trust_env) as at:
        await at.ask()
    assert at.chunks[-1] == Finish("stop")


async def test_a_trusted_proxy_is_used_for_other_hosts_unless_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with model_server(hello) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "0.0.0.0")
        # 0.0.0.0 is not a loopback name, yet leads to this machine.
        for url in ("http://model.invalid/v1", f"http://0.0.0.0:{proxy.port}/v1"):
            client = client_of(url, trust_env=True)
            await Setup(proxy, client).ask()
            await client.aclose()
    assert [exchange.path for exchange in proxy.exchanges] == [
        "http://model.invalid/v1/chat/completions",
        "/v1/chat/completions",
    ]


async def test_a_closed_client_refuses_without_being_retried() -> None:
    async with setup(hello) as at:
        await at.ask()
        await at.client.aclose()
        error = await at.failure()
        await at.client.aclose()
    assert error.kind == "bad-request"


async def test_closing_the_client_closes_its_connections() -> None:
    async def answer(exchange: Exchange) -> None:
        await hello(exchange)
        await exchange.client_left()
        left.set()

    left = anyio.Event()
    async with setup(answer) as at:
        await at.ask()
        await at.client.aclose()
        await left.wait()


@pytest.mark.parametrize("url", ["", "localhost:1/v1", "ftp://x", "https://name:word@x/v1"])
def test_an_address_that_is_none_is_refused_early(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        client_of(url)


def test_a_header_that_cannot_be_sent_is_refused_early() -> None:
    with pytest.raises(ConfigError, match="X-Name"):
        client_of("http://127.0.0.1:1", headers={"X-Name": "a\nb"})


def test_no_representation_shows_the_key() -> None:
    assert KEY not in repr(client_of("http://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("127.0.0.1.example", False),
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("::2", False),
    ],
)
def test_this_machine_is_told_from_others(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_bodies_are_the_same_for_the_same_request() -> None:
    client = client_of("http://127.0.0.1:1")
    transcript = client.transcript()
    transcript.extend([UserMessage(MessageId("m"), (Text("a"),))])
    request = ModelRequest(model="m", system="s", tools=(), transcript=transcript, options={"seed": 1})
    assert client.encode(request) == client.encode(request)
    assert json.loads(b"".join(client.encode(request)))["seed"] == 1
