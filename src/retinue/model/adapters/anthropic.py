"""The client for the Anthropic Messages format.

It puts requests together and reads replies; nothing here is retried. Prompts are cached by the provider up to the end
of the system prompt, which covers the tools, and up to the newest block of the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retinue.base.json import JSON, JSONObject
from retinue.base.recent import Recent
from retinue.errors import BadInput, ConfigError, ModelError
from retinue.model.adapters.anthropic_reply import AnthropicReader
from retinue.model.adapters.anthropic_transcript import CACHE_MARK, AnthropicTranscript
from retinue.model.adapters.endpoint import Endpoint
from retinue.model.adapters.sse import EventSplitter
from retinue.model.adapters.transport import Timeouts
from retinue.model.adapters.wire import encode_wire
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelRequest, ToolSpec, Transcript
from retinue.model.prices import Price

__all__ = ["AnthropicClient"]

VERSION = "2023-06-01"
"""Of the wire format. Source: Messages API, header `anthropic-version`."""

_OWN_FIELDS = {
    "model": "model",
    "messages": "the conversation",
    "system": "the prompt",
    "tools": "tools",
    "max_tokens": "max_tokens",
    "stream": "nothing, since replies are always streamed",
}
_DEFAULT_CEILING = 32_000
_END_GRACE_S = 0.25


class AnthropicClient:
    """A model client for one server. Nothing is connected, and no HTTP library imported, before the first request."""

    __slots__ = ("_ceilings", "_endpoint", "_heads", "_is_cached", "_prices", "_tools", "_windows")

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
        self._is_cached = is_cached
        self._windows = context_window
        self._ceilings = output_ceiling
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
        self._tools: Recent[int, tuple[tuple[ToolSpec, ...], bytes]] = Recent()
        self._heads: Recent[tuple[str, str], bytes] = Recent()

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
        return AnthropicTranscript()

    def encode(self, request: ModelRequest) -> Body:
        """The body to send: head, transcript, tools and tail, of which head and tools are shared by all like requests.

        Raises: BadInput if the transcript is another client's; ConfigError if `options` set a field that this client
        owns.
        """
        transcript = request.transcript
        if not isinstance(transcript, AnthropicTranscript):
            raise BadInput(f"the transcript is a {type(transcript).__name__}; take one from this client's transcript()")
        return (
            self._head(request.model, request.system),
            bytes(transcript.data),
            transcript.rest(cached=self._is_cached) + b"]",
            self._tool_list(request.tools),
            self._tail(request),
        )

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

    def _head(self, model: str, system: str) -> bytes:
        head = self._heads.get((model, system))
        if head is None:
            head = b'{"model":' + encode_wire(model)
            if system.strip():
                block: JSONObject = {"type": "text", "text": system}
                if self._is_cached:
                    block["cache_control"] = CACHE_MARK
                head += b',"system":' + encode_wire([block])
            head += b',"messages":['
            self._heads.put((model, system), head)
        return head

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if not tools:
            return b""
        kept = self._tools.get(id(tools))
        if kept is None:
            # The tuple is kept beside its bytes: as long as it lives, no other has its identity.
            kept = (tools, b',"tools":' + encode_wire([_tool(tool) for tool in tools]))
            self._tools.put(id(tools), kept)
        return kept[1]

    def _tail(self, request: ModelRequest) -> bytes:
        ceiling = self._ceilings(request.model) if self._ceilings else None
        fields: JSONObject = {"stream": True, "max_tokens": request.max_tokens or ceiling or _DEFAULT_CEILING}
        for name, value in request.options.items():
            if name in _OWN_FIELDS:
                raise ConfigError(f"option {name!r} of {self.provider!r} is not free; set {_OWN_FIELDS[name]} instead")
            fields[name] = value
        return b"," + encode_wire(fields)[1:]


def _tool(tool: ToolSpec) -> JSON:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
