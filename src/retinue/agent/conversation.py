"""What one agent's requests keep from step to step: its history in wire form, and the header that was logged last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.base.json import encode
from retinue.model.client import ModelClient, ModelRequest, ToolSpec, Transcript
from retinue.model.encoding import Encoder
from retinue.session.events import RequestHeaderChange
from retinue.session.folds import History

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = ["Conversation"]


class Conversation:
    """One agent's history in the wire form of one client. Grows with the log and is never encoded again."""

    __slots__ = ("_client", "_header", "_logged_header", "_names", "_position", "_transcript")

    def __init__(self) -> None:
        self._client: ModelClient | Encoder | None = None
        self._transcript: Transcript | None = None
        self._position = 0
        self._names: tuple[tuple[ToolSpec, ...], frozenset[str]] | None = None
        self._header: tuple[str, tuple[ToolSpec, ...], object] | None = None
        self._logged_header = False

    def transcript(self, history: History, client: ModelClient | Encoder) -> Transcript:
        """The whole history so far. `history` is the same one each time, grown or not."""
        if self._transcript is None or self._client is not client:
            self._client = client
            self._transcript, self._position = client.transcript(), 0
        messages = history.messages
        if self._position < len(messages):
            self._transcript.extend(messages[self._position :])
            self._position = len(messages)
        return self._transcript

    def tool_names(self, tools: tuple[ToolSpec, ...]) -> frozenset[str]:
        """The names of `tools`, collected again only for another list."""
        if self._names is None or self._names[0] is not tools:
            self._names = (tools, frozenset(spec.name for spec in tools))
        return self._names[1]

    def header_change(self, agent: Agent, request: ModelRequest) -> RequestHeaderChange | None:
        """The event to log before this request, if its header is not the last one of the log.

        The first request of a runtime always logs one. Source: behaviour TL-09.
        """
        header = (request.system, request.tools, agent.options)
        last = self._header
        if last is not None and header[1] is last[1] and header[2] is last[2] and header[0] == last[0]:
            return None
        self._header = header
        logged = agent.environment.headers.of(request)
        before = agent.session.turns.header
        if not self._logged_header:
            self._logged_header = True
            return RequestHeaderChange(logged, "initial" if before is None else "resume")
        # By their bytes: as values, 1 equals True, and the order of keys, which the body shows, counts for nothing.
        return None if encode(logged) == encode(before) else RequestHeaderChange(logged, "change")
