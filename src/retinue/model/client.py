"""The one protocol between an agent and a model, and the request it carries.

A client maps the neutral vocabulary to one wire format and nothing else: no retry, no history of its own, no policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.model.chunks import Sink
from retinue.model.content import Message

__all__ = ["Body", "ModelClient", "ModelRequest", "ToolSpec", "Transcript"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it. `parameters` is a JSON Schema (draft 2020-12) of an object; never mutated."""

    name: str
    description: str
    parameters: JSONObject


class Transcript(Protocol):
    """The conversation so far in one client's wire form, grown in place and never re-encoded."""

    def extend(self, messages: Sequence[Message]) -> None:
        """`messages` are part of the conversation, after all earlier ones. Cost grows with `messages` alone."""
        ...


Body: TypeAlias = tuple[bytes, ...]
"""What is sent, in pieces. Equal pieces, such as the tools of a thousand children, are one object."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request. `transcript` comes from the same client's `transcript()` and holds the whole conversation."""

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    """Sorted as the model shall see them; the same tuple object as long as nothing changed."""
    transcript: Transcript
    max_tokens: int | None = None
    options: JSONObject = field(default_factory=lambda: JSONObject())
    """Extra body fields that the configuration sets for this provider, sent as they are."""
    session_id: SessionId = SessionId("")
    label: str = ""
    """Whose request it is; never on the wire."""


class ModelClient(Protocol):
    """A vendor or server of models. One client serves any number of concurrent requests."""

    @property
    def provider(self) -> str:
        """The name it is configured under, such as `deepseek`."""
        ...

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        ...

    def transcript(self) -> Transcript:
        """A new empty conversation in this client's wire form."""
        ...

    def encode(self, request: ModelRequest) -> Body:
        """The body to send: a pure function of the request, so that it can be rebuilt and compared later."""
        ...

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """Every chunk of one attempt went to `sink`, the last of them a `Finish`.

        Raises: ModelError, also for a stream that ends without a finish reason or stays silent too long. Cancelling
        closes the connection at once; chunks that were delivered stay delivered.
        """
        ...

    async def aclose(self) -> None:
        """All connections are closed."""
        ...
