"""A model request as a scripted model saw it: for values taken from it, and for assertions afterwards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.model.client import Body, ToolSpec
from retinue.model.content import AssistantMessage, Message, ToolMessage, UserMessage, text_of

__all__ = ["RequestState", "SeenRequest"]

RequestState: TypeAlias = Literal["running", "answered", "failed", "aborted", "unexpected"]


@dataclass(slots=True, kw_only=True, eq=False)
class SeenRequest:
    """One attempt of one request. The agent's own objects, so nothing was lost on a wire."""

    session_id: SessionId
    label: str
    number: int
    """From 1 within the session; every attempt counts."""
    attempt: int
    """From 1; one more than that of the request before it if that failed and had the same body."""
    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    max_tokens: int | None
    options: JSONObject
    body: Body
    state: RequestState = "running"
    log: Sequence[Message] = field(repr=False)
    """The transcript that the request came with; it grows. Use `messages`."""
    length: int = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it was sent."""
        return tuple(self.log[: self.length])

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools offered, in their order."""
        return tuple(spec.name for spec in self.tools)

    @property
    def users(self) -> tuple[str, ...]:
        """The text of each message in user role, whoever sent it."""
        return tuple(text_of(m.content) for m in self.messages if isinstance(m, UserMessage))

    @property
    def results(self) -> tuple[str, ...]:
        """The text of each tool result."""
        return tuple(text_of(m.content) for m in self.messages if isinstance(m, ToolMessage))

    @property
    def new(self) -> tuple[str, ...]:
        """The texts that came after the model's last reply: results and user messages, in order."""
        texts: list[str] = []
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                break
            texts.append(text_of(message.content))
        return tuple(reversed(texts))

    @property
    def text(self) -> str:
        """The whole conversation as text, one message per line, calls included."""
        lines: list[str] = []
        for message in self.messages:
            lines.append(text_of(message.content))
            if isinstance(message, AssistantMessage):
                lines.extend(f"{call.name} {call.arguments}" for call in message.calls)
        return "\n".join(lines)

    def find(self, pattern: str) -> str:
        """The newest match of a regular expression in `text`: its first group if it has one.

        Raises: AssertionError with the conversation if nothing matches.
        """
        found = list(re.finditer(pattern, self.text))
        if not found:
            raise AssertionError(f"nothing matches {pattern!r} in the conversation of {self.who}:\n{self.text}")
        return found[-1].group(1 if found[-1].re.groups else 0)

    @property
    def who(self) -> str:
        """The session as a reader of a failure knows it."""
        return f"{self.label!r} ({self.session_id})" if self.label else repr(self.session_id)
