"""Neutral messages to the messages of the OpenAI chat format, appended to one growing body.

Decisions, each for a reason that servers taught:

- Text blocks of a message are joined so that none runs into the next (a line break where the first has none); a single
  text is sent as a plain string, unchanged, since some servers and chat templates know no content parts.
- Tool results may not hold images in this format. They follow as one user message after the last result of the step,
  since nothing may stand between results, and each result says that its image follows.
- A call whose arguments are no JSON object is sent back as an object (`object_text`): vLLM, llama.cpp and Ollama parse
  arguments of the history.
- Lone surrogates become U+FFFD: they have no UTF-8.
- A message without content is left out; so is one with reasoning alone, unless the server takes reasoning back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from retinue.base.json import JSON, JSONObject
from retinue.model.adapters.quirks import Quirks
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

__all__ = ["ChatTranscript"]


class ChatTranscript:
    """The conversation as encoded messages, each preceded by a comma."""

    __slots__ = ("_data", "_images", "_quirks", "digest")

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._data = bytearray()
        self._images: list[JSON] = []
        self.digest = RunningDigest()
        """Of the bodies that were made with this conversation."""

    def extend(self, messages: Sequence[Message]) -> None:
        """`messages` are encoded and appended; what was there is not touched."""
        data = self._data
        for message in messages:
            if self._images and type(message) is not ToolMessage:
                data += self.pending()
                self._images.clear()
            wire = self._wire(message)
            if wire is not None:
                data += b","
                data += encode_wire(wire)

    @property
    def data(self) -> bytearray:
        """All encoded messages but the pending one; not to be changed or kept."""
        return self._data

    def pending(self) -> bytes:
        """The user message with the images of the newest tool results, which later results may still extend."""
        return b"," + encode_wire({"role": "user", "content": self._images}) if self._images else b""

    def _wire(self, message: Message) -> JSONObject | None:
        match message:
            case UserMessage(content=content):
                return {"role": "user", "content": self._content(content)} if content else None
            case ToolMessage():
                return self._result(message)
            case AssistantMessage():
                return self._reply(message)
            case _:
                assert_never(message)

    def _content(self, blocks: tuple[InputBlock, ...]) -> JSON:
        if not self._quirks.images or all(isinstance(b, Text) for b in blocks):
            return _lines([b.text if isinstance(b, Text) else _omitted(b) for b in blocks])
        parts: list[JSON] = []
        texts: list[str] = []
        for block in blocks:
            if isinstance(block, Text):
                texts.append(block.text)
                continue
            _flush(texts, parts)
            parts.append(_image(block))
        _flush(texts, parts)
        return parts

    def _result(self, message: ToolMessage) -> JSONObject:
        texts: list[str] = []
        for block in message.content:
            if isinstance(block, Text):
                texts.append(block.text)
            elif self._quirks.images:
                texts.append(f"[{block.media_type} image: in the next user message]")
                self._images.append({"type": "text", "text": f"[image of tool result {message.call_id}]"})
                self._images.append(_image(block))
            else:
                texts.append(_omitted(block))
        return {"role": "tool", "tool_call_id": message.call_id, "content": _lines(texts)}

    def _reply(self, message: AssistantMessage) -> JSONObject | None:
        field = self._quirks.reasoning_field
        texts: list[str] = []
        reasoning: list[str] = []
        calls: list[JSON] = []
        signature: str | None = None
        for block in message.content:
            match block:
                case Text(text=text):
                    texts.append(text)
                case Reasoning(text=text, signature=proof):
                    reasoning.append(text)
                    signature = proof_by("", proof) or signature
                case ToolCall():
                    calls.append(self._call(block, signature if not calls else None))
                case Image():
                    texts.append(_omitted(block))
                case _:
                    assert_never(block)
        thought = "".join(reasoning)
        if not texts and not calls and not (field and thought):
            return None
        # An absent text is null beside calls, as the format documents, but some servers refuse null without calls.
        wire: JSONObject = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
        if field and (thought or calls):
            wire[field] = thought
        if calls:
            wire["tool_calls"] = calls
        return wire

    def _call(self, call: ToolCall, signature: str | None) -> JSONObject:
        wire: JSONObject = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": object_text(call.arguments)},
        }
        if self._quirks.call_signatures and signature:
            wire["extra_content"] = {"google": {"thought_signature": signature}}
        return wire


def _lines(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    last = len(texts) - 1
    return "".join(t if i == last or not t or t.endswith("\n") else t + "\n" for i, t in enumerate(texts))


def _flush(texts: list[str], parts: list[JSON]) -> None:
    if texts:
        parts.append({"type": "text", "text": _lines(texts)})
        texts.clear()


def _image(image: Image) -> JSON:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.data}"}}


def _omitted(image: Image) -> str:
    return f"[{image.media_type} image left out: this model takes text only]"
