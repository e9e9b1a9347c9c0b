"""The client for every server that speaks the OpenAI chat format: DeepSeek, OpenAI, Ollama, vLLM, llama.cpp and others.

It puts requests together and reads replies; what differs between servers is data (`Quirks`), and nothing here is
retried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from retinue.base.json import JSON, JSONObject
from retinue.base.recent import Recent
from retinue.errors import BadInput, ConfigError, ModelError
from retinue.model.adapters.http_errors import status_error
from retinue.model.adapters.openai_reply import ReplyReader
from retinue.model.adapters.openai_transcript import ChatTranscript, encode_wire
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.sse import EventSplitter
from retinue.model.adapters.transport import Reply, Timeouts, Transport
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelRequest, ToolSpec, Transcript

__all__ = ["OpenAIChatClient"]

_OWN_FIELDS = {"model": "model", "messages": "the conversation", "tools": "tools", "stream": "quirks.stream"}
_SECRET = re.compile("auth|key|token|secret", re.IGNORECASE)
_USAGE_GRACE_S = 5.0
_END_GRACE_S = 0.25


class OpenAIChatClient:
    """A model client for one server. Nothing is connected, and no HTTP library imported, before the first request."""

    __slots__ = ("_heads", "_headers", "_provider", "_quirks", "_secrets", "_tools", "_transport", "_url", "_windows")

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str | None = None,
        quirks: Quirks | None = None,
        context_window: Callable[[str], int | None] | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
    ) -> None:
        """`base_url` is the address up to, not including, `/chat/completions`. `headers` are sent in addition.

        Raises: ConfigError if an address or header cannot be used.
        """
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"base_url {base_url!r} of {provider!r} must start with http:// or https://")
        if "@" in urlsplit(base_url).netloc:
            raise ConfigError(f"base_url of {provider!r} holds credentials; give them as the key or as a header")
        self._provider = provider
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._quirks = quirks or Quirks()
        self._windows = context_window
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if self._quirks.stream else "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "retinue",
            **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            **(headers or {}),
        }
        for name, value in self._headers.items():
            if not (name + value).isprintable() or not value.isascii():
                raise ConfigError(f"header {name!r} of {provider!r} holds a character that no header may hold")
        self._secrets = tuple(v.split()[-1] for n, v in self._headers.items() if v.strip() and _SECRET.search(n))
        self._transport = Transport(timeouts=timeouts, trust_env=trust_env, secrets=self._secrets)
        self._tools: Recent[int, tuple[tuple[ToolSpec, ...], bytes]] = Recent()
        self._heads: Recent[tuple[str, str], bytes] = Recent()

    def __repr__(self) -> str:
        return f"OpenAIChatClient({self._provider!r}, {self._url!r})"

    @property
    def provider(self) -> str:
        """The name it is configured under, such as `deepseek`."""
        return self._provider

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        return self._windows(model) if self._windows else None

    def transcript(self) -> Transcript:
        """A new empty conversation in the chat format."""
        return ChatTranscript(self._quirks)

    def encode(self, request: ModelRequest) -> Body:
        """The body to send: head, transcript, tools and tail, of which head and tools are shared by all like requests.

        Raises: BadInput if the transcript is another client's; ConfigError if `options` set a field that this client
        owns.
        """
        transcript = request.transcript
        if not isinstance(transcript, ChatTranscript):
            raise BadInput(f"the transcript is a {type(transcript).__name__}; take one from this client's transcript()")
        head = self._head(request.model, request.system)
        messages = bytes(transcript.data)
        if head.endswith(b"["):  # without a system message the first comma has nothing before it
            messages = messages[1:]
        return head, messages, transcript.pending() + b"]", self._tool_list(request.tools), self._tail(request)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """Every chunk of one attempt went to `sink`, the last of them a `Finish`.

        Raises: ModelError. Cancelling closes the connection at once; chunks that were delivered stay delivered.
        """
        reader = ReplyReader(sink, self._provider, self._secrets)
        try:
            async with self._transport.post(self._url, body, self._headers) as reply:
                if not 200 <= reply.status < 300:
                    reply.limit(10.0)
                    said = await reply.read_all(64_000)
                    raise status_error(self._provider, reply.status, reply.headers, said, self._secrets)
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
        await self._transport.aclose()

    def _head(self, model: str, system: str) -> bytes:
        head = self._heads.get((model, system))
        if head is None:
            head = b'{"model":' + encode_wire(model) + b',"messages":['
            if system:
                head += encode_wire({"role": self._quirks.system_role, "content": system})
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
        quirks = self._quirks
        fields: JSONObject = {"stream": quirks.stream}
        if quirks.stream and quirks.stream_usage:
            fields["stream_options"] = {"include_usage": True}
        if request.max_tokens is not None:
            fields[quirks.max_tokens_field] = request.max_tokens
        for name, value in request.options.items():
            if name in _OWN_FIELDS:
                raise ConfigError(f"option {name!r} of {self._provider!r} is not free; set {_OWN_FIELDS[name]} instead")
            fields[name] = value
        return b"," + encode_wire(fields)[1:]


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


def _tool(tool: ToolSpec) -> JSON:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }
