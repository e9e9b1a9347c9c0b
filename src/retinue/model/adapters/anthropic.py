"""The client for the Anthropic Messages format.

It sends requests and reads replies; nothing here is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retinue.errors import ModelError
from retinue.model.adapters.anthropic_encoder import AnthropicEncoder
from retinue.model.adapters.anthropic_reply import AnthropicReader
from retinue.model.adapters.endpoint import Endpoint
from retinue.model.adapters.sse import EventSplitter
from retinue.model.adapters.transport import Timeouts
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.prices import Price

__all__ = ["AnthropicClient"]

VERSION = "2023-06-01"
"""Of the wire format. Source: Messages API, header `anthropic-version`."""

_END_GRACE_S = 0.25


class AnthropicClient:
    """A model client for one server. Nothing is connected, and no HTTP library imported, before the first request."""

    __slots__ = ("_endpoint", "_prices", "_windows", "encoder")

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str | None = None,
        is_cached: bool = True,
        context_window: Callable[[str], int | None] | None = None,
        output_ceiling: Callable[[str], int | None] | None = None,
        price: Callable[[str], Price | None] | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
    ) -> None:
        """`base_url` is the address up to, not including, `/v1/messages`. `headers` are sent in addition.

        `output_ceiling` gives what a request of a model asks for if the configuration says nothing, since the format
        demands a number. Raises: ConfigError if an address or header cannot be used.
        """
        self._windows = context_window
        self._prices = price
        self._endpoint = Endpoint(
            provider=provider,
            base_url=base_url,
            path="/v1/messages",
            headers={
                "Accept": "text/event-stream",
                "anthropic-version": VERSION,
                **({"x-api-key": api_key} if api_key else {}),
                **(headers or {}),
            },
            timeouts=timeouts,
            trust_env=trust_env,
        )
        self.encoder = AnthropicEncoder(provider, is_cached=is_cached, output_ceiling=output_ceiling)

    def __repr__(self) -> str:
        return f"AnthropicClient({self.provider!r}, {self._endpoint.url!r})"

    @property
    def provider(self) -> str:
        """The name it is configured under, such as `anthropic`."""
        return self._endpoint.provider

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        return self._windows(model) if self._windows else None

    def transcript(self) -> Transcript:
        """A new empty conversation in the Messages format."""
        return self.encoder.transcript()

    def encode(self, request: ModelRequest) -> Body:
        """The body to send. Raises: what `AnthropicEncoder.encode` raises."""
        return self.encoder.encode(request)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """Every chunk of one attempt went to `sink`, the last of them a `Finish`.

        Raises: ModelError. Cancelling closes the connection at once; chunks that were delivered stay delivered.
        """
        price = self._prices(request.model) if self._prices else None
        reader = AnthropicReader(sink, self.provider, self._endpoint.secrets, price)
        try:
            async with self._endpoint.post(body) as reply:
                if reply.content_type == "application/json":
                    reader.event(await reply.read_all())
                else:
                    splitter = EventSplitter()
                    while not reader.done and (chunk := await reply.read()):
                        for data in splitter.feed(chunk):
                            reader.event(data)
                    if reader.done:
                        # The end of the body gives the connection back; it is in the same packet or close behind.
                        reply.limit(_END_GRACE_S)
                        await reply.read_all()
        except ModelError as error:
            # Nothing of the reply follows its stop reason, so a cut or silence after it spoils nothing.
            if reader.stop_reason is None or error.kind not in ("transport", "timeout"):
                raise
        reader.end()

    async def aclose(self) -> None:
        """All connections are closed."""
        await self._endpoint.aclose()
