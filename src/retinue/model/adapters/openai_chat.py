"""The client for every server that speaks the OpenAI chat format: DeepSeek, OpenAI, Ollama, vLLM, llama.cpp and others.

It sends requests and reads replies; what differs between servers is data (`Quirks`), and nothing here is
retried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retinue.errors import ModelError
from retinue.model.adapters.endpoint import Endpoint
from retinue.model.adapters.openai_encoder import ChatEncoder
from retinue.model.adapters.openai_reply import ReplyReader
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.sse import EventSplitter
from retinue.model.adapters.transport import Reply, Timeouts
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.prices import Price

__all__ = ["OpenAIChatClient"]

_USAGE_GRACE_S = 5.0
_END_GRACE_S = 0.25


class OpenAIChatClient:
    """A model client for one server. Nothing is connected, and no HTTP library imported, before the first request."""

    __slots__ = ("_endpoint", "_prices", "_quirks", "_windows", "encoder")

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str | None = None,
        quirks: Quirks | None = None,
        context_window: Callable[[str], int | None] | None = None,
        price: Callable[[str], Price | None] | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
    ) -> None:
        """`base_url` is the address up to, not including, `/chat/completions`. `headers` are sent in addition.

        Raises: ConfigError if an address or header cannot be used.
        """
        self._quirks = quirks or Quirks()
        self._windows = context_window
        self._prices = price
        self._endpoint = Endpoint(
            provider=provider,
            base_url=base_url,
            path="/chat/completions",
            headers={
                "Accept": "text/event-stream" if self._quirks.stream else "application/json",
                **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
                **(headers or {}),
            },
            timeouts=timeouts,
            trust_env=trust_env,
        )
        self.encoder = ChatEncoder(provider, self._quirks)

    def __repr__(self) -> str:
        return f"OpenAIChatClient({self.provider!r}, {self._endpoint.url!r})"

    @property
    def provider(self) -> str:
        """The name it is configured under, such as `deepseek`."""
        return self._endpoint.provider

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        return self._windows(model) if self._windows else None

    def transcript(self) -> Transcript:
        """A new empty conversation in the chat format."""
        return self.encoder.transcript()

    def encode(self, request: ModelRequest) -> Body:
        """The body to send. Raises: what `ChatEncoder.encode` raises."""
        return self.encoder.encode(request)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """Every chunk of one attempt went to `sink`, the last of them a `Finish`.

        Raises: ModelError. Cancelling closes the connection at once; chunks that were delivered stay delivered.
        """
        price = self._prices(request.model) if self._prices else None
        reader = ReplyReader(sink, self.provider, self._endpoint.secrets, price)
        try:
            async with self._endpoint.post(body) as reply:
                media = reply.content_type
                if media == "application/json" or (not self._quirks.stream and media != "text/event-stream"):
                    reader.whole(await reply.read_all())
                else:
                    await _read_events(reply, reader)
        except ModelError as error:
            # What follows the finish reason is usage at best: its loss, by a cut or by silence, spoils no reply.
            if reader.finish_reason is None or error.kind not in ("transport", "timeout"):
                raise
        reader.end()

    async def aclose(self) -> None:
        """All connections are closed."""
        await self._endpoint.aclose()


async def _read_events(reply: Reply, reader: ReplyReader) -> None:
    splitter = EventSplitter()
    finished = False
    while chunk := await reply.read():
        for data in splitter.feed(chunk):
            reader.event(data)
        if reader.done:
            if reader.finish_reason is None:
                return
            # The end of the body gives the connection back; it is in the same packet or close behind.
            reply.limit(_END_GRACE_S)
            await reply.read_all()
            return
        if not finished and reader.finish_reason is not None:
            finished = True
            reply.limit(_USAGE_GRACE_S)
    for data in splitter.close():
        reader.event(data)
