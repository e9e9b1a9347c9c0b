"""A loopback HTTP server for adapter tests: every request gets what the test's own function writes, byte by byte."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

__all__ = ["Exchange", "ModelServer", "delta", "event", "model_server", "reply_of", "stream_of"]

Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One request and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    stream: SocketStream
    source: BufferedByteReceiveStream

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def head(self, status: int = 200, content_type: str = "text/event-stream", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.stream.send("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes) -> None:
        await self.stream.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.stream.send(b"0\r\n\r\n")

    async def whole(self, data: bytes | dict[str, Any] | list[Any], status: int = 200, **headers: str) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        await self.head(status, "application/json", **headers)
        await self.send(body)
        await self.end()

    async def events(self, *data: bytes) -> None:
        await self.head()
        for item in data:
            await self.send(item)
        await self.end()

    async def until_closed(self, data: bytes) -> None:
        """A stream whose only end is that of the connection, so that nobody can tell a cut from it."""
        await self.stream.send(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + data)
        await self.stream.aclose()

    async def client_left(self) -> None:
        """The client has closed its side of the connection."""
        try:
            while True:
                await self.source.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


@dataclass
class ModelServer:
    port: int
    answer: Answer
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def handle(self, stream: SocketStream) -> None:
        self.connections += 1
        number = self.connections
        source = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                while True:
                    exchange = await _read_request(stream, source, number)
                    self.exchanges.append(exchange)
                    await self.answer(exchange)
            except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


@asynccontextmanager
async def model_server(answer: Answer) -> AsyncGenerator[ModelServer]:
    """A listening server; leaving the block ends its connections."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        server = ModelServer(listener.extra(SocketAttribute.local_port), answer)
        tasks.start_soon(listener.serve, server.handle)
        yield server
        tasks.cancel_scope.cancel()


async def _read_request(stream: SocketStream, source: BufferedByteReceiveStream, number: int) -> Exchange:
    head = (await source.receive_until(b"\r\n\r\n", 65536)).decode()
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await source.receive_exactly(int(headers.get("content-length", "0")))
    return Exchange(method, path, headers, body, number, stream, source)


def event(value: dict[str, Any] | str) -> bytes:
    return b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def reply_of(finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    """A whole reply."""
    return {"choices": [{"index": 0, "message": {"role": "assistant"} | fields, "finish_reason": finish}]}


def stream_of(values: Iterable[dict[str, Any]]) -> bytes:
    """The bytes of a whole stream."""
    return b"".join(event(value) for value in values) + b"data: [DONE]\n\n"
