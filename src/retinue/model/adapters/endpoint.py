"""One address of a model server: its headers, its secrets, its connections, and the refusals it answers with.

Shared by all adapters; knows no body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

from retinue.errors import ConfigError
from retinue.model.adapters.http_errors import status_error
from retinue.model.adapters.transport import Reply, Timeouts, Transport
from retinue.model.client import Body

__all__ = ["Endpoint"]

_SECRET = re.compile("auth|key|token|secret", re.IGNORECASE)
_REFUSAL_BYTES = 64_000
_REFUSAL_S = 10.0


class Endpoint:
    """Where requests go. Nothing is connected, and no HTTP library imported, before the first one."""

    __slots__ = ("_headers", "_transport", "provider", "secrets", "url")

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        path: str,
        headers: Mapping[str, str],
        timeouts: Timeouts | None = None,
        trust_env: bool = False,
    ) -> None:
        """Requests go to `base_url` + `path`. Raises: ConfigError if the address or a header cannot be used."""
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base_url {base_url!r} of {provider!r} must start with http:// or https://")
        if "@" in urlsplit(base_url).netloc:
            raise ConfigError(f"base_url of {provider!r} holds credentials; give them as the key or as a header")
        self.provider = provider
        self.url = base_url.rstrip("/") + path
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "retinue",
            **headers,
        }
        for name, value in self._headers.items():
            if not (name + value).isprintable() or not value.isascii():
                raise ConfigError(f"header {name!r} of {provider!r} holds a character that no header may hold")
        self.secrets = tuple(v.split()[-1] for n, v in self._headers.items() if v.strip() and _SECRET.search(n))
        self._transport = Transport(timeouts=timeouts, trust_env=trust_env, secrets=self.secrets)

    def post(self, body: Body) -> AbstractAsyncContextManager[Reply]:
        """An answer whose head is here; leaving the block before its end closes the connection at once.

        Raises: as `Transport.post`. An answer that refuses the request is one too, see `check`.
        """
        return self._transport.post(self.url, body, self._headers)

    async def check(self, reply: Reply) -> None:
        """Return if the answer is a successful one; call it before reading. Raises: ModelError."""
        if not 200 <= reply.status < 300:
            reply.limit(_REFUSAL_S)
            said = await reply.read_all(_REFUSAL_BYTES)
            raise status_error(self.provider, reply.status, reply.headers, said, self.secrets)

    async def aclose(self) -> None:
        """All connections are closed; later requests are refused."""
        await self._transport.aclose()
