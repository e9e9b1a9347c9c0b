"""The bodies of requests in the Anthropic Messages format. Pure.

Prompts are cached by the provider up to the end of the system prompt, which covers the tools, and up to the newest
block of the conversation.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, ValidationError, convert

from retinue.base.json import JSON, JSONObject
from retinue.base.recent import Recent
from retinue.errors import BadInput
from retinue.model.adapters.anthropic_transcript import CACHE_MARK, AnthropicTranscript
from retinue.model.adapters.pieces import KeptTools, tail_of, transcript_of
from retinue.model.adapters.wire import encode_wire
from retinue.model.client import Body, ModelRequest, ToolSpec
from retinue.model.encoding import Encoding, SentBody

__all__ = ["ANTHROPIC_ENCODER", "ANTHROPIC_VERSION", "AnthropicEncoder"]

ANTHROPIC_ENCODER = "anthropic-messages"
ANTHROPIC_VERSION = 1
"""Goes up with every change after which an equal request has other bytes; a test holds the bytes of each version."""

_OWN_FIELDS = {
    "model": "model",
    "messages": "the conversation",
    "system": "the prompt",
    "tools": "tools",
    "max_tokens": "max_tokens",
    "stream": "nothing, since replies are always streamed",
}
_DEFAULT_CEILING = 32_000


class _Options(Struct, frozen=True, forbid_unknown_fields=True):
    """What a log says beyond name and version."""

    ceiling: int
    cached: bool = True


class AnthropicEncoder:
    """Makes the bodies for one server."""

    __slots__ = ("_ceilings", "_encodings", "_heads", "_is_cached", "_provider", "_tools")

    def __init__(
        self, provider: str, *, is_cached: bool = True, output_ceiling: Callable[[str], int | None] | None = None
    ) -> None:
        """`provider` is named in errors alone; `output_ceiling` is what a request asks for that says nothing."""
        self._provider = provider
        self._is_cached = is_cached
        self._ceilings = output_ceiling
        self._encodings: dict[str, Encoding] = {}
        self._tools = KeptTools(_tool)
        self._heads: Recent[tuple[str, str], bytes] = Recent()

    @classmethod
    def again(cls, provider: str, encoding: Encoding) -> AnthropicEncoder:
        """The encoder that had this encoding, in today's version. Raises: BadInput for options that it never had."""
        try:
            options = convert(encoding.options, _Options)
        except ValidationError as error:
            raise BadInput(f"the options of encoder {encoding.name!r} cannot be used: {error}") from error
        return cls(provider, is_cached=options.cached, output_ceiling=lambda model: options.ceiling)

    def encoding(self, model: str) -> Encoding:
        """Its name, version and options; the ceiling is that of the model."""
        kept = self._encodings.get(model)
        if kept is None:
            options: dict[str, JSON] = {"ceiling": self._ceiling(model)}
            if not self._is_cached:
                options["cached"] = False
            kept = self._encodings[model] = Encoding(ANTHROPIC_ENCODER, ANTHROPIC_VERSION, options)
        return kept

    def transcript(self) -> AnthropicTranscript:
        """A new empty conversation in the Messages format."""
        return AnthropicTranscript()

    def encode(self, request: ModelRequest) -> Body:
        """The body to send: head, transcript, tools and tail, of which head and tools are shared by all like requests.

        Raises: BadInput if the transcript is another client's; ConfigError if `options` set a field that this client
        owns.
        """
        transcript = transcript_of(request, AnthropicTranscript)
        return (
            self._head(request.model, request.system),
            bytes(transcript.data),
            transcript.rest(cached=self._is_cached) + b"]",
            self._tools.field(request.tools),
            self._tail(request),
        )

    def sent(self, request: ModelRequest, body: Body) -> SentBody:
        """The record of `body`, which `encode` made of `request`. Costs what is new since the last one."""
        return transcript_of(request, AnthropicTranscript).digest.of(body)

    def _ceiling(self, model: str) -> int:
        return (self._ceilings(model) if self._ceilings else None) or _DEFAULT_CEILING

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

    def _tail(self, request: ModelRequest) -> bytes:
        fields: JSONObject = {"stream": True, "max_tokens": request.max_tokens or self._ceiling(request.model)}
        return tail_of(fields, request, _OWN_FIELDS, self._provider)


def _tool(tool: ToolSpec) -> JSON:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
