"""Aiohttp for models, in one module: session, request body, hanging up, and its failures in plain words."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from urllib.parse import SplitResult

import aiohttp
from aiohttp.abc import AbstractStreamWriter

__all__ = ["FAILURES", "Body", "describe", "hang_up", "loop_clock", "new_session"]

FAILURES: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError, ValueError)
"""What aiohttp raises for a request or a read that fails; `TimeoutError` is an `OSError`."""

_SLICE_BYTES = 256 * 2**10


def new_session(connect_s: float) -> aiohttp.ClientSession:
    """A session without limits, cookies, proxies or total timeout; deadlines other than connecting are the caller's."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_s),
        trust_env=False,
    )


def loop_clock() -> Callable[[], float]:
    """The running loop's own clock, which deadlines are points of."""
    return asyncio.get_running_loop().time


class Body(aiohttp.Payload):
    """Pieces of bytes of any size. Small ones are joined when they are written; large ones go out in slices.

    A slice neither blocks the loop nor makes aiohttp warn about it.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(pieces, content_type="application/json")
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    async def write(self, writer: AbstractStreamWriter) -> None:
        if self._size is not None and self._size <= _SLICE_BYTES:
            await writer.write(b"".join(self._pieces))
            return
        for piece in self._pieces:
            view = memoryview(piece)
            for start in range(0, len(view), _SLICE_BYTES):
                await writer.write(view[start : start + _SLICE_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)  # the length that was announced is that of all pieces

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._pieces).decode(encoding, errors)


def hang_up(response: aiohttp.ClientResponse) -> None:
    """An answer read to its end gives its connection back; any other connection is closed, whatever is still queued."""
    connection = response.connection
    if connection is None:
        return
    transport = connection.transport
    response.close()
    if transport is not None:
        transport.abort()


def describe(error: Exception, url: SplitResult, connect_s: float) -> tuple[str, str]:
    """The (kind, message) of one of `FAILURES`: which host, what happened, what to do."""
    host = url.netloc
    detail = str(error) or type(error).__name__
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "timeout", f"no connection to {host} within {connect_s:g} s; check base_url and the network"
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return (
                "transport",
                f"the proxy for {host} cannot be used ({detail}); check the proxy variables and NO_PROXY",
            )
        case aiohttp.ClientConnectorDNSError():
            return "transport", f"the name of {host} cannot be resolved ({detail}); check base_url and the network"
        case aiohttp.ClientSSLError():
            return (
                "transport",
                f"no secure connection to {host} ({detail}); check base_url, the certificate and the clock",
            )
        case aiohttp.ClientConnectorError(errno=errno.ECONNREFUSED):
            return "transport", f"nothing listens at {host}; start the model server or check base_url"
        case aiohttp.ClientConnectorError():
            return "transport", f"cannot connect to {host} ({detail}); check base_url and the network"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return "bad-request", f"base_url {host!r} is no http or https address ({detail})"
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return "transport", f"the answer of {host} is incomplete or broken ({detail})"
        case aiohttp.ClientError() | OSError():
            return "transport", f"the connection to {host} was lost ({detail})"
        case _:
            return "bad-request", f"the request to {host} cannot be sent ({detail}); check base_url and headers"
