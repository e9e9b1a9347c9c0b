"""Replies of the Anthropic Messages format to chunks: streamed events and whole bodies through one path.

Source: Messages API, "Streaming messages" and "Handling stop reasons".
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from retinue.base.json import encode
from retinue.errors import ModelError
from retinue.model.adapters.anthropic_transcript import HIDDEN, THINKING
from retinue.model.adapters.event_stream import read_events
from retinue.model.adapters.http_errors import payload_error, unreadable
from retinue.model.adapters.transport import Reply
from retinue.model.chunks import CallDelta, CallStart, Finish, FinishReason, ReasoningDelta, Sink, TextDelta, Used
from retinue.model.content import Usage
from retinue.model.prices import Price, cost_usd

__all__ = ["AnthropicReader"]


class _Block(Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Any = None


class _Delta(Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Usage(Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Start(Struct, gc=False):
    usage: _Usage | None = None


class _Event(Struct, gc=False):
    type: str = ""
    index: int = 0
    message: _Start | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None
    error: Any = None


_decode = Decoder(_Event).decode

_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}


class AnthropicReader:
    """Reads one reply and passes it to the sink; `end` says whether it was a whole one."""

    __slots__ = (
        "_has_calls",
        "_price",
        "_provider",
        "_secrets",
        "_signature",
        "_sink",
        "_spoke",
        "_usage",
        "is_closed",
        "stop_reason",
    )

    def __init__(
        self,
        sink: Sink,
        provider: str,
        secrets: tuple[str, ...] = (),
        price: Price | None = None,
    ) -> None:
        self._sink = sink
        self._provider = provider
        self._secrets = secrets
        self._price = price
        self._spoke = False
        self._has_calls = False
        self._signature = ""
        self._usage = _Usage()
        self.stop_reason: str | None = None
        """The provider's own word, once it came."""
        self.is_closed = False
        """The closing event came."""

    @property
    def is_finished(self) -> bool:
        """The stop reason came. Nothing of the reply follows it."""
        return self.stop_reason is not None

    async def read(self, reply: Reply) -> None:
        """All that the reply holds went to the sink, but for its `Finish`. Raises: as `event` and `Reply.read`."""
        if reply.content_type == "application/json":
            self.event(await reply.read_all())
            return
        await read_events(reply, self)

    def event(self, data: bytes) -> None:
        """The chunks of one event's data went to the sink. Raises: ModelError for an error or what is no event."""
        try:
            event = _decode(data)
        except (ValueError, RecursionError) as error:
            if not data.strip():
                return
            raise unreadable(self._provider, "no event of a message", data, error, self._secrets) from error
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._delta(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                self._open(event.index, event.content_block)
            case "message_start" if event.message is not None:
                self._use(event.message.usage)
            case "message_delta":
                self._end_of_message(event.delta.stop_reason if event.delta else None, event.usage)
            case "message_stop":
                self.is_closed = True
            case "message":
                for index, block in enumerate(event.content or ()):
                    self._open(index, block)
                self._end_of_message(event.stop_reason, event.usage)
                self.is_closed = True
            case "error":
                raise payload_error(self._provider, {"error": event.error}, self._secrets)
            case _:
                pass  # pings, ends of blocks, and whatever the format may gain

    def end(self) -> None:
        """The `Finish` went to the sink. Raises: ModelError if the reply was cut or says nothing."""
        if self.stop_reason is None:
            raise ModelError("transport", f"the reply of {self._provider} ended without a stop reason: it was cut")
        finish = _REASONS.get(self.stop_reason, "tool-calls" if self._has_calls else "stop")
        if finish == "stop" and not self._spoke:
            raise ModelError("empty-response", f"{self._provider} answered with nothing: no text and no tool call")
        self._sink(Finish(finish))

    def _open(self, index: int, block: _Block) -> None:
        match block.type:
            case "text":
                self._text(block.text)
            case "thinking":
                self._signature = block.signature
                proof = f"{THINKING}:{block.signature}" if block.signature else None
                self._sink(ReasoningDelta(block.thinking, proof, starts=True))
            case "redacted_thinking":
                self._sink(ReasoningDelta("", f"{HIDDEN}:{block.data}", starts=True))
            case "tool_use":
                self._has_calls = True
                self._sink(CallStart(index, block.id, block.name))
                if block.input:
                    self._sink(CallDelta(index, encode(block.input).decode()))
            case _:
                pass

    def _delta(self, index: int, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self._text(delta.text)
            case "thinking_delta":
                self._spoke = True
                self._sink(ReasoningDelta(delta.thinking))
            case "signature_delta":
                self._signature += delta.signature
                self._sink(ReasoningDelta("", f"{THINKING}:{self._signature}"))
            case "input_json_delta":
                self._sink(CallDelta(index, delta.partial_json))
            case _:
                pass

    def _text(self, text: str) -> None:
        if text:
            self._spoke = True
            self._sink(TextDelta(text))

    def _end_of_message(self, reason: str | None, usage: _Usage | None) -> None:
        self.stop_reason = reason or self.stop_reason
        self._use(usage)

    def _use(self, said: _Usage | None) -> None:
        """Counts are cumulative, and an event repeats only some of them."""
        if said is None:
            return
        known = self._usage
        self._usage = known = _Usage(
            input_tokens=_newer(said.input_tokens, known.input_tokens),
            output_tokens=_newer(said.output_tokens, known.output_tokens),
            cache_creation_input_tokens=_newer(said.cache_creation_input_tokens, known.cache_creation_input_tokens),
            cache_read_input_tokens=_newer(said.cache_read_input_tokens, known.cache_read_input_tokens),
        )
        read, written = known.cache_read_input_tokens or 0, known.cache_creation_input_tokens or 0
        usage = Usage(
            input_tokens=(known.input_tokens or 0) + read + written,
            output_tokens=known.output_tokens or 0,
            cached_tokens=read,
            cache_write_tokens=written,
            requests=1,
        )
        if self._price is not None:
            usage = replace(usage, cost_usd=cost_usd(self._price, usage))
        self._sink(Used(usage))


def _newer(said: int | None, known: int | None) -> int | None:
    return known if said is None else said
