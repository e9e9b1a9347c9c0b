"""The bodies of requests in the OpenAI chat format. Pure: what differs between servers is data (`Quirks`)."""

from __future__ import annotations

import msgspec

from retinue.base.json import JSON, JSONObject
from retinue.base.recent import Recent
from retinue.errors import BadInput
from retinue.model.adapters.openai_transcript import ChatTranscript
from retinue.model.adapters.pieces import KeptTools, tail_of, transcript_of
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.wire import encode_wire
from retinue.model.client import Body, ModelRequest, ToolSpec
from retinue.model.encoding import Encoding, SentBody

__all__ = ["CHAT_ENCODER", "CHAT_VERSION", "ChatEncoder"]

CHAT_ENCODER = "openai-chat"
CHAT_VERSION = 1
"""Goes up with every change after which an equal request has other bytes; a test holds the bytes of each version."""

_OWN_FIELDS = {
    "model": "model",
    "messages": "the conversation",
    "tools": "tools",
    "stream": "quirks.stream",
    "max_tokens": "max_tokens",
}


class ChatEncoder:
    """Makes the bodies for one server."""

    __slots__ = ("_heads", "_provider", "_quirks", "_tools", "_encoding")

    def __init__(self, provider: str, quirks: Quirks) -> None:
        """`provider` is named in errors alone."""
        self._encoding = Encoding(CHAT_ENCODER, CHAT_VERSION, _deviations(quirks))
        self._provider = provider
        self._quirks = quirks
        self._tools = KeptTools(_tool)
        self._heads: Recent[tuple[str, str], bytes] = Recent()

    @classmethod
    def again(cls, provider: str, encoding: Encoding) -> ChatEncoder:
        """The encoder that had this encoding, in today's version. Raises: BadInput for options that it never had."""
        try:
            return cls(provider, msgspec.convert(encoding.options, Quirks))
        except msgspec.ValidationError as error:
            raise BadInput(f"the options of encoder {encoding.name!r} cannot be used: {error}") from error

    def encoding(self, model: str) -> Encoding:
        """Its name, version and options, which are the same for all models."""
        return self._encoding

    def transcript(self) -> ChatTranscript:
        """A new empty conversation in the chat format."""
        return ChatTranscript(self._quirks)

    def encode(self, request: ModelRequest) -> Body:
        """The body to send: head, transcript, tools and tail, of which head and tools are shared by all like requests.

        Raises: BadInput if the transcript is another client's; ConfigError if `options` set a field that this client
        owns.
        """
        transcript = transcript_of(request, ChatTranscript)
        head = self._head(request.model, request.system)
        messages = bytes(transcript.data)
        if head.endswith(b"["):  # without a system message the first comma has nothing before it
            messages = messages[1:]
        return head, messages, transcript.pending() + b"]", self._tools.field(request.tools), self._tail(request)

    def sent(self, request: ModelRequest, body: Body) -> SentBody:
        """The record of `body`, which `encode` made of `request`. Costs what is new since the last one."""
        return transcript_of(request, ChatTranscript).digest.of(body)

    def _head(self, model: str, system: str) -> bytes:
        head = self._heads.get((model, system))
        if head is None:
            head = b'{"model":' + encode_wire(model) + b',"messages":['
            if system:
                head += encode_wire({"role": self._quirks.system_role, "content": system})
            self._heads.put((model, system), head)
        return head

    def _tail(self, request: ModelRequest) -> bytes:
        quirks = self._quirks
        fields: JSONObject = {"stream": quirks.stream}
        if quirks.stream and quirks.stream_usage:
            fields["stream_options"] = {"include_usage": True}
        if request.max_tokens is not None:
            fields[quirks.max_tokens_field] = request.max_tokens
        return tail_of(fields, request, _OWN_FIELDS, self._provider)


def _deviations(quirks: Quirks) -> dict[str, JSON]:
    """What is not as in `Quirks()`."""
    usual = msgspec.structs.asdict(Quirks())
    return {name: value for name, value in msgspec.structs.asdict(quirks).items() if value != usual[name]}


def _tool(tool: ToolSpec) -> JSON:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }
