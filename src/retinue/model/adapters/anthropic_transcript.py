"""Neutral messages to the messages of the Anthropic Messages format, appended to one growing body.

Decisions, each for a rule of the format:

- Neighbours of one role are one message: the results of a step and what the user says after them belong together.
- The newest block is encoded last of all, since the mark that asks for caching stands on it and moves on with it.
- Text that is blank is refused by the format, so it is left out; so is a message of which nothing is left.
- Reasoning goes back with its proof, unchanged, and only to the maker of the proof.
- Ids of calls are unique and of few letters in this format. Those of other providers repeat, so they are given anew;
  results follow their call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from retinue.base.json import JSON, JSONObject
from retinue.model.adapters.wire import encode_wire, object_text, proof_by
from retinue.model.content import (
    AssistantMessage,
    Image,
    InputBlock,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.model.encoding import RunningDigest

__all__ = ["CACHE_MARK", "HIDDEN", "THINKING", "AnthropicTranscript"]

THINKING = "anthropic"
"""The maker of proofs of reasoning that can be read."""
HIDDEN = "anthropic-redacted"
"""The maker of reasoning that is its own proof, since nobody may read it."""

CACHE_MARK: JSONObject = {"type": "ephemeral"}
"""Everything up to the block that carries it is kept by the provider for some minutes."""

_Role: TypeAlias = Literal["user", "assistant"]
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS = 128


class AnthropicTranscript:
    """The conversation as encoded messages. All but the newest block is final."""

    __slots__ = ("_data", "_ids", "_newest", "_role", "_used", "digest")

    def __init__(self) -> None:
        self._data = bytearray()
        self._role: _Role | None = None
        self._newest: dict[str, Any] | None = None
        self._ids: dict[str, str] = {}
        self._used: set[str] = set()
        self.digest = RunningDigest()
        """Of the bodies that were made with this conversation."""

    def extend(self, messages: Sequence[Message]) -> None:
        """`messages` are encoded and appended; what was there is not touched."""
        for message in messages:
            match message:
                case UserMessage(content=content):
                    self._add("user", _input(content))
                case ToolMessage():
                    self._add("user", [self._result(message)])
                case AssistantMessage():
                    self._add("assistant", list(self._reply(message)))
                case _:
                    assert_never(message)

    @property
    def data(self) -> bytearray:
        """All encoded blocks but the newest; not to be changed or kept."""
        return self._data

    def rest(self, *, cached: bool) -> bytes:
        """What completes `data` to a list of messages; `cached` puts the mark on the newest block."""
        if self._newest is None:
            return b""
        return encode_wire(self._newest | {"cache_control": CACHE_MARK} if cached else self._newest) + b"]}"

    def _add(self, role: _Role, blocks: Sequence[dict[str, Any]]) -> None:
        for block in blocks:
            if self._newest is not None:
                self._data += encode_wire(self._newest)
                self._data += b"," if role == self._role else b"]},"
            if role != self._role:
                self._data += b'{"role":"%b","content":[' % role.encode()
            self._role, self._newest = role, block

    def _result(self, message: ToolMessage) -> JSONObject:
        # A result without its call cannot be sent, so an unknown id is kept and the provider says so.
        result: JSONObject = {
            "type": "tool_result",
            "tool_use_id": self._ids.get(message.call_id) or _plain(message.call_id),
        }
        content: list[JSON] = [*_input(message.content)]
        if content:
            result["content"] = content
        if message.is_error:
            result["is_error"] = True
        return result

    def _reply(self, message: AssistantMessage) -> Iterator[dict[str, Any]]:
        self._ids = {}
        for block in message.content:
            match block:
                case Text(text=text):
                    if text.strip():
                        yield {"type": "text", "text": text}
                case Reasoning():
                    yield from _reasoning(block)
                case ToolCall():
                    yield self._call(block)
                case Image():
                    yield {"type": "text", "text": f"[{block.media_type} image left out: it came from a model]"}
                case _:
                    assert_never(block)

    def _call(self, call: ToolCall) -> dict[str, Any]:
        id = base = _plain(call.id)
        n = 1
        while id in self._used:
            n += 1
            id = f"{base}_{n}"
        self._used.add(id)
        self._ids[call.id] = id
        return {
            "type": "tool_use",
            "id": id,
            "name": _plain(call.name)[:_NAME_CHARS],
            "input": msgspec.Raw(object_text(call.arguments).encode()),
        }


def _input(blocks: Sequence[InputBlock]) -> list[JSONObject]:
    wire: list[JSONObject] = []
    for block in blocks:
        if isinstance(block, Image):
            source: JSONObject = {"type": "base64", "media_type": block.media_type, "data": block.data}
            wire.append({"type": "image", "source": source})
        elif block.text.strip():
            wire.append({"type": "text", "text": block.text})
    return wire


def _reasoning(block: Reasoning) -> Iterator[JSONObject]:
    hidden, proof = proof_by(HIDDEN, block.signature), proof_by(THINKING, block.signature)
    if hidden is not None:
        yield {"type": "redacted_thinking", "data": hidden}
    elif proof is not None:
        yield {"type": "thinking", "thinking": block.text, "signature": proof}


def _plain(name: str) -> str:
    return _FORBIDDEN.sub("_", name) or "_"
