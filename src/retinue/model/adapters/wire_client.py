"""The model client of every adapter: one server, and the wire format that is spoken with it.

What is format comes in from outside, an encoder and a reader of replies. Nothing here is retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from retinue.errors import ModelError
from retinue.model.adapters.endpoint import Endpoint
from retinue.model.adapters.transport import Reply
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.encoding import Encoder
from retinue.model.prices import Price

__all__ = ["Reader", "WireClient"]


class Reader(Protocol):
    """Reads one reply of a format and passes its chunks to the sink it was made with."""

    @property
    def is_finished(self) -> bool:
        """The model has said why it stopped, so that nothing which can still be missing would spoil the reply."""
        ...

    async def read(self, reply: Reply) -> None:
        """All that the reply holds went to the sink, but for its `Finish`.

        Raises: ModelError for an error or for what is no reply, and as `Reply.read`.
        """
        ...

    def end(self) -> None:
        """The `Finish` went to the sink. Raises: ModelError if the reply was cut, broke off or says nothing."""
        ...


class WireClient:
    """A model client for one server. Nothing is connected, and no HTTP library imported, before the first request."""

    __slots__ = ("_endpoint", "_prices", "_reader", "_windows", "encoder", "provider")

    def __init__(
        self,
        endpoint: Endpoint,
        encoder: Encoder,
        reader: Callable[[Sink, str, tuple[str, ...], Price | None], Reader],
        *,
        context_window: Callable[[str], int | None] | None = None,
        price: Callable[[str], Price | None] | None = None,
    ) -> None:
        """The client owns `endpoint`. `reader` is given a sink, the provider's name, what no error may show, and the
        price of the model if it is known."""
        self._endpoint = endpoint
        self._reader = reader
        self._windows = context_window
        self._prices = price
        self.encoder = encoder
        self.provider = endpoint.provider
        """The name it is configured under, such as `deepseek`."""

    def __repr__(self) -> str:
        return f"WireClient({self.provider!r}, {self._endpoint.url!r})"

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        return self._windows(model) if self._windows else None

    def transcript(self) -> Transcript:
        """A new empty conversation in the format."""
        return self.encoder.transcript()

    def encode(self, request: ModelRequest) -> Body:
        """The body to send. Raises: what the `encode` of its encoder raises."""
        return self.encoder.encode(request)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """Every chunk of one attempt went to `sink`, the last of them a `Finish`.

        Raises: ModelError. Cancelling closes the connection at once; chunks that were delivered stay delivered.
        """
        endpoint = self._endpoint
        price = self._prices(request.model) if self._prices else None
        reader = self._reader(sink, endpoint.provider, endpoint.secrets, price)
        try:
            async with endpoint.post(body) as reply:
                await endpoint.check(reply)
                await reader.read(reply)
        except ModelError as error:
            # A cut or a silence that comes after the model's last word spoils nothing.
            if not reader.is_finished or error.kind not in ("transport", "timeout"):
                raise
        reader.end()

    async def aclose(self) -> None:
        """All connections are closed."""
        await self._endpoint.aclose()
