"""One page over HTTP, within rules: which hosts, which addresses, how much, how long.

The address is checked where the connection is made, after the name was resolved, so that a name that changes its
address between check and connection gains nothing; every redirect is checked like the first address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import anyio

from retinue.errors import ToolFailure

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult
    from yarl import URL

__all__ = ["Fetcher", "Page"]

_REDIRECTS = 5
_TEXT_TYPES = re.compile(r"text/|application/(.*\+)?(json|xml|javascript|yaml|toml|x-sh|x-ndjson)\b")
_CHARSET = re.compile(r"charset=\"?([\w.:-]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What an address answered with."""

    url: str
    """After redirects."""
    media_type: str
    text: str
    is_cut: bool

    @property
    def is_html(self) -> bool:
        """It is to be rendered."""
        return self.media_type in ("text/html", "application/xhtml+xml")


class Fetcher:
    """Fetches pages. No connection outlives a call."""

    def __init__(
        self,
        *,
        allow_private: Iterable[str] = (),
        allow_hosts: Iterable[str] = (),
        deny_hosts: Iterable[str] = (),
        max_bytes: int = 5_000_000,
        timeout_s: float = 30.0,
    ) -> None:
        self._private = frozenset(map(_host, allow_private))
        self._allowed = tuple(map(_host, allow_hosts))
        self._denied = tuple(map(_host, deny_hosts))
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def get(self, url: str) -> Page:
        """The page at `url`.

        Raises: ToolFailure `BAD_ADDRESS`, `NOT_ALLOWED`, `TIMEOUT`, `HTTP_ERROR`, `NOT_TEXT` or `UNREACHABLE`.
        Cancelling closes the connection.
        """
        import aiohttp

        with anyio.move_on_after(self._timeout_s):
            try:
                connector = aiohttp.TCPConnector(resolver=self._resolver(), use_dns_cache=False)
                async with aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None),
                    headers={"User-Agent": "retinue", "Accept": "text/*, application/json;q=0.9, */*;q=0.5"},
                ) as session:
                    return await self._follow(session, url)
            except aiohttp.ClientConnectorDNSError as error:
                refusal = error.os_error.__cause__ or error.os_error
                if isinstance(refusal, ToolFailure):
                    raise refusal from None
                raise ToolFailure("UNREACHABLE", f"the name of {_shown(url)} cannot be resolved") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise ToolFailure("UNREACHABLE", f"{_shown(url)} cannot be fetched: {error}") from error
        raise ToolFailure("TIMEOUT", f"{_shown(url)} did not arrive within {self._timeout_s:g} s")

    async def _follow(self, session: Any, url: str) -> Page:
        for _ in range(_REDIRECTS + 1):
            async with session.get(self._checked(url), allow_redirects=False) as response:
                if response.status in (301, 302, 303, 307, 308) and "Location" in response.headers:
                    url = urljoin(url, response.headers["Location"])
                    continue
                if not 200 <= response.status < 300:
                    raise ToolFailure("HTTP_ERROR", f"{_shown(url)} answered HTTP {response.status} {response.reason}")
                return await self._read(response, url)
        raise ToolFailure("HTTP_ERROR", f"{_shown(url)} redirects more than {_REDIRECTS} times")

    async def _read(self, response: Any, url: str) -> Page:
        declared = response.headers.get("Content-Type", "text/plain")
        media_type = declared.partition(";")[0].strip().lower()
        if not _TEXT_TYPES.match(media_type):
            raise ToolFailure("NOT_TEXT", f"{_shown(url)} is {media_type}, which cannot be shown as text")
        data = bytearray()
        while len(data) <= self._max_bytes and (chunk := await response.content.readany()):
            data += chunk
        is_cut = len(data) > self._max_bytes
        named = _CHARSET.search(declared)
        try:
            text = bytes(data[: self._max_bytes]).decode(named.group(1) if named else "utf-8", "replace")
        except LookupError:
            text = bytes(data[: self._max_bytes]).decode("utf-8", "replace")
        return Page(url=url, media_type=media_type, text=text, is_cut=is_cut)

    def _checked(self, text: str) -> URL:
        """What is judged is what is connected to: the client's own reading of the address, in which `127。0。0。1` is
        127.0.0.1 and a host has one spelling."""
        from yarl import URL

        try:
            url = URL(text)
            host = _host(url.raw_host or "")
            _ = url.port
        except ValueError as error:
            raise ToolFailure("BAD_ADDRESS", f"{_shown(text)!r} is no address: {error}") from error
        if url.scheme not in ("http", "https") or not host:
            raise ToolFailure("BAD_ADDRESS", f"{_shown(text)!r} is no absolute http or https address")
        if url.user or url.password:
            raise ToolFailure("BAD_ADDRESS", f"{_shown(text)!r}: an address may not hold a user name or password")
        names = (host, _host(url.host or ""))
        if any(_is_below(name, denied) for denied in self._denied for name in names):
            raise ToolFailure("NOT_ALLOWED", f"the host {host} is denied by the configuration")
        if self._allowed and not any(_is_below(name, allowed) for allowed in self._allowed for name in names):
            raise ToolFailure("NOT_ALLOWED", f"the host {host} is not allowed; allowed are {', '.join(self._allowed)}")
        with suppress(ValueError):  # a name; a literal address is never resolved, so it is judged here
            self._judge(host, str(ipaddress.ip_address(host.split("%")[0])))
        return url

    def _judge(self, host: str, address: str) -> None:
        """Raises: ToolFailure `NOT_ALLOWED` if `address` is not public and `host` may not have such a one."""
        if host not in self._private and not _is_public(address):
            raise ToolFailure(
                "NOT_ALLOWED", f"{host} is {address}, an address of this machine or its network; only public ones are"
            )

    def _resolver(self) -> Any:
        from aiohttp.abc import AbstractResolver
        from aiohttp.resolver import ThreadedResolver

        judge = self._judge

        class Resolver(AbstractResolver):
            """Resolves names, and refuses the connection if one of their addresses is not allowed."""

            def __init__(self) -> None:
                self._inner = ThreadedResolver()

            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
            ) -> list[ResolveResult]:
                found = await self._inner.resolve(host, port, family)
                for entry in found:
                    try:
                        judge(_host(host), entry["host"])
                    except ToolFailure as refusal:
                        raise OSError(str(refusal)) from refusal
                return found

            async def close(self) -> None:
                await self._inner.close()

        return Resolver()


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(str(inner))
    return ip.is_global and not ip.is_multicast


def _host(name: str) -> str:
    return name.strip().strip("[]").rstrip(".").lower()


def _is_below(host: str, parent: str) -> bool:
    return host == parent or host.endswith(f".{parent}")


def _shown(url: str) -> str:
    """The address without what may be secret in it."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else url[:200]
    except ValueError:
        return url[:200]
