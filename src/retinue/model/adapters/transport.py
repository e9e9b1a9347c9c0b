"""The way of a request to a model server and of its answer back, over HTTP.

Owns connections, deadlines and the wording of network failures. It knows no wire format, follows no redirect, keeps
no cookie and never repeats a request. aiohttp is imported with the first request, since that takes a quarter of a
second.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from retinue.errors import ModelError
from retinue.model.adapters.http_errors import bounded, scrubbed

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Reply", "Timeouts", "Transport", "is_loopback"]

_MAX_REPLY_BYTES = 256 * 2**20


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long a server may take, in seconds. There is no limit for a whole reply: one that streams may go on."""

    connect_s: float = 15.0
    """Name resolution, connection and TLS together."""
    first_byte_s: float = 600.0
    """From the request to the head of the answer. Some servers load a model first, or answer only when all is done."""
    idle_s: float = 300.0
    """Silence inside an answer. Any byte counts, keep-alive comments as well."""
    rest_s: float = 5.0
    """From the model's last word to the end of the answer: only usage and closing marks follow it. No byte counts."""


class Reply:
    """An answer whose head has arrived. Valid inside the `with` block that produced it."""

    __slots__ = (
        "_content",
        "_failure",
        "_idle_s",
        "_left",
        "_now",
        "_rearm_at",
        "_rest_s",
        "_scope",
        "_wrapped",
        "headers",
        "status",
    )

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        scope: anyio.CancelScope,
        timeouts: Timeouts,
        now: Callable[[], float],
        wrapped: tuple[type[Exception], ...],
        failure: Callable[[Exception], ModelError],
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._content = response.content
        self._scope = scope
        self._idle_s = timeouts.idle_s
        self._rest_s = timeouts.rest_s
        self._now = now
        self._wrapped = wrapped
        self._failure = failure
        self._left = _MAX_REPLY_BYTES
        self._rearm_at = 0.0
        self._rearm(now())

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def _rearm(self, now: float) -> None:
        # Moving the deadline for every chunk would cost more than reading it: it moves when a 16th of the limit has
        # passed, and lies that much further away, so silence is never cut short.
        slack = self._idle_s / 16
        self._rearm_at = now + slack
        self._scope.deadline = now + self._idle_s + slack

    def limit(self, seconds: float) -> None:
        """The rest of the answer must arrive within `seconds`; bytes do not extend this any more."""
        now = self._now()
        self._rearm_at = float("inf")
        self._scope.deadline = min(self._scope.deadline, now + seconds)

    def limit_rest(self) -> None:
        """What is still to come adds nothing to the reply, and must arrive within the time for that."""
        self.limit(self._rest_s)

    async def read(self) -> bytes:
        """What has arrived, at least one byte; empty at the end.

        Raises: ModelError (`transport`) when the connection breaks; silence ends the surrounding block.
        """
        try:
            chunk = await self._content.readany()
        except self._wrapped as error:
            raise self._failure(error) from error
        now = self._now()
        if now > self._rearm_at:
            self._rearm(now)
        self._left -= len(chunk)
        if self._left < 0:
            raise ModelError("server", f"the answer exceeds {_MAX_REPLY_BYTES} bytes; it was cut off")
        return chunk

    async def read_all(self, limit: int = _MAX_REPLY_BYTES) -> bytes:
        """The rest of the answer, or its first `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        while size < limit and (chunk := await self.read()):
            parts.append(chunk)
            size += len(chunk)
        return b"".join(parts)[:limit]


class Transport:
    """Connections to model servers, kept open between requests. Belongs to one event loop from its first request on."""

    __slots__ = ("_closed", "_now", "_proxies", "_secrets", "_session", "_timeouts", "_trust_env")

    def __init__(
        self, *, timeouts: Timeouts | None = None, trust_env: bool = False, secrets: tuple[str, ...] = ()
    ) -> None:
        """`secrets` never appear in error messages.

        `trust_env` uses the proxy variables, but never for this machine: a local server must not be sought elsewhere.
        """
        self._timeouts = timeouts or Timeouts()
        self._trust_env = trust_env
        self._secrets = secrets
        self._session: aiohttp.ClientSession | None = None
        self._now: Callable[[], float] = time.monotonic
        self._proxies: dict[str, str | None] = {}
        self._closed = False

    @asynccontextmanager
    async def post(self, url: str, body: Sequence[bytes], headers: Mapping[str, str]) -> AsyncGenerator[Reply]:
        """The head of the answer is here; leaving the block before its end closes the connection at once.

        Raises: ModelError (`timeout`, `transport`, `bad-request`), also out of the block's own reads.
        """
        from retinue.model.adapters import _aiohttp as http

        if self._closed:
            raise ModelError("bad-request", "the model client is closed; create a new one")
        session = self._session
        if session is None:
            session = self._session = http.new_session(self._timeouts.connect_s)
            self._now = http.loop_clock()
        proxy = self._proxy(url) if self._trust_env else None
        timeouts = self._timeouts
        now = self._now
        response: aiohttp.ClientResponse | None = None

        def failure(error: Exception) -> ModelError:
            kind, text = http.describe(error, urlsplit(url), timeouts.connect_s)
            return ModelError(kind, bounded(scrubbed(text, self._secrets)))

        with anyio.CancelScope(deadline=now() + timeouts.first_byte_s) as scope:
            try:
                response = await session.post(
                    url, data=http.Body(body), headers=headers, allow_redirects=False, proxy=proxy
                )
            except http.FAILURES as error:
                raise failure(error) from error
            try:
                yield Reply(response, scope, timeouts, now, http.FAILURES, failure)
            finally:
                http.hang_up(response)
        if scope.cancelled_caught:
            host = urlsplit(url).netloc  # without credentials: clients refuse addresses that hold any
            if response is None:
                raise ModelError("timeout", f"{host} did not answer within {timeouts.first_byte_s:g} s")
            raise ModelError("timeout", f"{host} fell silent for {timeouts.idle_s:g} s in the middle of its answer")

    def _proxy(self, url: str) -> str | None:
        parts = urlsplit(url)
        key = f"{parts.scheme}://{parts.netloc}"
        if key not in self._proxies:
            self._proxies[key] = _env_proxy(parts.scheme, parts.netloc, parts.hostname or "")
        return self._proxies[key]

    async def aclose(self) -> None:
        """All connections are closed, those of running requests as well; later requests are refused."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            with anyio.move_on_after(5, shield=True):
                await session.close()


def is_loopback(host: str) -> bool:
    """True if `host` can only be this machine."""
    name = host.strip("[]").lower().rstrip(".")
    if name in {"localhost", "::1"} or name.endswith(".localhost"):
        return True
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(p.isdigit() for p in parts)


def _env_proxy(scheme: str, netloc: str, host: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    if is_loopback(host) or proxy_bypass(netloc):
        return None
    proxies = getproxies()
    return proxies.get(scheme) or proxies.get("all")
