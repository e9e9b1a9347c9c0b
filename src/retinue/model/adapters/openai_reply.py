"""Replies of the OpenAI chat format to chunks: streamed events and whole bodies through one path.

Servers differ most in tool calls. A delta opens a call or continues one; `_Calls` decides which, and gives every call
a slot of its own, whatever the server's indices and ids are.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.base.json import decode, encode
from retinue.base.text import well_formed
from retinue.errors import ModelError
from retinue.model.adapters.event_stream import read_events
from retinue.model.adapters.http_errors import payload_error, unreadable
from retinue.model.adapters.transport import Reply
from retinue.model.chunks import CallDelta, CallStart, Finish, FinishReason, ReasoningDelta, Sink, TextDelta, Used
from retinue.model.content import Usage
from retinue.model.prices import Price, cost_usd

__all__ = ["ReplyReader"]


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Google(Struct, gc=False):
    thought_signature: str | None = None


class _Extra(Struct, gc=False):
    google: _Google | None = None


class _CallPart(Struct, gc=False):
    index: int | None = None
    id: str | int | None = None
    function: _Function | None = None
    extra_content: _Extra | None = None


class _Part(Struct, gc=False):
    text: str | None = None


class _Message(Struct, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPart] | None = None
    function_call: _Function | None = None


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    cost: float | None = None


class _Choice(Struct, gc=False):
    index: int | None = None
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Body(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None


_strict = msgspec.json.Decoder(_Body).decode


def _decode(data: bytes) -> _Body:
    """The event. Halves of characters, which some servers send as escapes of their own, stay in it as surrogates."""
    try:
        return _strict(data)
    except ValueError:
        if b"\\ud" not in data and b"\\uD" not in data:
            raise
        return msgspec.convert(json.loads(data), _Body)


def _encoded(value: dict[str, Any]) -> str:
    try:
        return encode(value).decode()
    except ValueError:
        return well_formed(json.dumps(value, ensure_ascii=False))


_REASONS: dict[str, FinishReason] = {
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content-filter",
}
_BROKEN = {
    "error": "an error without explanation",
    "insufficient_system_resource": "the server ran out of resources",
}


class ReplyReader:
    """Reads one reply and passes it to the sink; `end` says whether it was a whole one."""

    __slots__ = (
        "_calls",
        "_is_streamed",
        "_price",
        "_provider",
        "_secrets",
        "_sink",
        "_spoke",
        "_usage",
        "finish_reason",
        "is_closed",
    )

    def __init__(
        self,
        sink: Sink,
        provider: str,
        secrets: tuple[str, ...] = (),
        price: Price | None = None,
        *,
        is_streamed: bool = True,
    ) -> None:
        """`price` tells the cost where the server does not say it; `is_streamed` is what was asked for."""
        self._sink = sink
        self._is_streamed = is_streamed
        self._price = price
        self._provider = provider
        self._secrets = secrets
        self._calls = _Calls(sink)
        self._spoke = False
        self._usage: Usage | None = None
        self.finish_reason: str | None = None
        """The server's own word, once it came."""
        self.is_closed = False
        """The stream's closing mark came."""

    @property
    def is_finished(self) -> bool:
        """The finish reason came. What follows it is usage at best."""
        return self.finish_reason is not None

    async def read(self, reply: Reply) -> None:
        """All that the reply holds went to the sink, but for its `Finish`. Raises: as `event` and `Reply.read`."""
        media = reply.content_type
        if media == "application/json" or (not self._is_streamed and media != "text/event-stream"):
            self.whole(await reply.read_all())
            return
        await read_events(reply, self)

    def event(self, data: bytes) -> None:
        """The chunks of one event's data went to the sink. Raises: ModelError for an error or what is no reply."""
        try:
            body = _decode(data)
        except (ValueError, RecursionError) as error:
            if data.strip() == b"[DONE]":
                self.is_closed = True
            elif data.strip():
                self._refuse(data, error)
            return
        if body.error is not None or body.object == "error":
            raise payload_error(self._provider, decode(data), self._secrets)
        for choice in body.choices or ():
            if choice.index:
                continue
            if choice.error is not None:
                raise payload_error(self._provider, choice.error, self._secrets)
            message = choice.delta or choice.message
            if message is not None:
                self._message(message)
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
            if choice.usage is not None:
                self._use(choice.usage)
        if body.usage is not None:
            self._use(body.usage)

    def whole(self, body: bytes) -> None:
        """The chunks of a whole reply went to the sink; one that names no finish reason is complete all the same."""
        self.event(body)
        if self.finish_reason is None and (self._spoke or self._calls.any):
            self.finish_reason = "stop"

    def end(self) -> None:
        """The `Finish` went to the sink. Raises: ModelError if the reply was cut, broke off or says nothing."""
        reason = self.finish_reason
        if reason is None:
            raise ModelError("transport", f"the reply of {self._provider} ended without a finish reason: it was cut")
        if reason in _BROKEN:
            raise ModelError("server", f"{self._provider} broke off: {_BROKEN[reason]}")
        finish = _REASONS.get(reason, "stop")
        if finish in ("stop", "tool-calls"):
            finish = "tool-calls" if self._calls.any else "stop"
        if finish == "stop" and not self._spoke:
            raise ModelError("empty-response", f"{self._provider} answered with nothing: no text and no tool call")
        self._sink(Finish(finish))

    def _message(self, message: _Message) -> None:
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            self._spoke = True
            self._sink(ReasoningDelta(reasoning))
        text = message.content or message.refusal
        if text:
            if not isinstance(text, str):
                text = "".join(part.text or "" for part in text)
            self._spoke = True
            self._sink(TextDelta(text))
        if message.tool_calls:
            for part in message.tool_calls:
                self._calls.part(part)
        if message.function_call is not None:
            self._calls.part(_CallPart(function=message.function_call))

    def _use(self, wire: _Usage) -> None:
        details, spent = wire.prompt_tokens_details, wire.completion_tokens_details
        usage = Usage(
            input_tokens=wire.prompt_tokens or 0,
            output_tokens=wire.completion_tokens or 0,
            cached_tokens=(details and details.cached_tokens)
            or wire.prompt_cache_hit_tokens
            or wire.cached_tokens
            or 0,
            reasoning_tokens=(spent and spent.reasoning_tokens) or 0,
            requests=1,
            cost_usd=wire.cost,
        )
        if usage.cost_usd is None and self._price is not None:
            usage = replace(usage, cost_usd=cost_usd(self._price, usage))
        if usage != self._usage:
            self._usage = usage
            self._sink(Used(usage))

    def _refuse(self, data: bytes, error: Exception) -> NoReturn:
        try:
            value = decode(data)
        except (ValueError, RecursionError):
            value = None
        match value:
            case {"error": _} | [{"error": _}, *_]:
                raise payload_error(self._provider, value, self._secrets) from error
            case _:
                raise unreadable(self._provider, "no chat completion", data, error, self._secrets) from error


class _Call:
    __slots__ = ("arguments", "id", "name", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    @property
    def is_complete(self) -> bool:
        try:
            return isinstance(decode(well_formed("".join(self.arguments))), dict)
        except (ValueError, RecursionError):
            return False


class _Calls:
    """The tool calls of one reply.

    Seen in the wild: no index, the same index for parallel calls (with different ids), no ids, one id for all, the
    name after the first delta, the name again in every delta, arguments as an object, a whole call in one delta.
    """

    __slots__ = ("_by_index", "_last", "_sink", "_slots")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._by_index: dict[int, _Call] = {}
        self._slots = 0
        self._last: _Call | None = None

    @property
    def any(self) -> bool:
        return self._slots > 0

    def part(self, part: _CallPart) -> None:
        function = part.function
        id = "" if part.id is None else str(part.id)
        name, arguments = "", ""
        if function is not None:
            name = function.name or ""
            raw = function.arguments
            arguments = raw if isinstance(raw, str) else "" if raw is None else _encoded(raw)
        call = self._last if part.index is None else self._by_index.get(part.index)
        if call is None or _opens(call, part.index, id, name, arguments):
            call = self._open(part)
            self._sink(CallStart(call.slot, id, name))
            call.id, call.name = id, name
        elif (id and not call.id) or (name and not call.name):
            call.id, call.name = call.id or id, call.name or name
            self._sink(CallStart(call.slot, call.id, call.name))
        self._last = call
        if arguments:
            call.arguments.append(arguments)
            self._sink(CallDelta(call.slot, arguments))

    def _open(self, part: _CallPart) -> _Call:
        call = _Call(self._slots)
        self._slots += 1
        if part.index is not None:
            self._by_index[part.index] = call
        google = part.extra_content and part.extra_content.google
        if google and google.thought_signature:
            self._sink(ReasoningDelta("", google.thought_signature))
        return call


def _opens(call: _Call, index: int | None, id: str, name: str, arguments: str) -> bool:
    """True if a delta that could continue `call` begins another one: it names a function where one is named already."""
    if not name or not call.name:
        return False
    if id and call.id and id != call.id:
        return True
    if index is None and not id and not call.arguments:
        return True
    return bool(arguments.strip()) and call.is_complete
