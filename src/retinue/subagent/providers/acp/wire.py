"""What agents answer and tell over the wire, protocol version 1, as far as a provider of children reads it.

Everything else that they send is passed over. Source: https://agentclientprotocol.com, JSON Schema of version 1.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, field

from retinue.base.json import JSON, JSONObject

__all__ = [
    "VERSION",
    "Capabilities",
    "Initialized",
    "PermissionOption",
    "PermissionRequest",
    "Prompted",
    "SessionCapabilities",
    "SessionOpened",
    "Update",
    "Updated",
    "read",
]

VERSION = 1
"""Of the protocol."""

T = TypeVar("T")


class _In(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class PromptCapabilities(_In, frozen=True):
    """What may be in a prompt besides text."""

    image: bool | None = None


class SessionCapabilities(_In, frozen=True):
    """What can be done with sessions; what is there is supported."""

    resume: JSON = None


class Capabilities(_In, frozen=True):
    """What the agent says it can do."""

    load_session: bool | None = None
    prompt_capabilities: PromptCapabilities | None = None
    session_capabilities: SessionCapabilities | None = None

    @property
    def resumes(self) -> bool:
        """It takes up an earlier session without telling again what was said in it."""
        return self.session_capabilities is not None and self.session_capabilities.resume is not None

    @property
    def continues(self) -> bool:
        """It takes up an earlier session."""
        return bool(self.load_session) or self.resumes


class Initialized(_In, frozen=True):
    """The answer to `initialize`."""

    protocol_version: int
    agent_capabilities: Capabilities | None = None


class SessionOpened(_In, frozen=True):
    """The answer to `session/new`."""

    session_id: str


class Prompted(_In, frozen=True):
    """The answer to `session/prompt`. `usage` is from the unstable part of the protocol."""

    stop_reason: str
    usage: JSON = None


class Update(_In, frozen=True):
    """One thing that is new in a session; which of the fields it has depends on its kind."""

    kind: str = field(name="sessionUpdate")
    content: JSON = None
    message_id: str | None = None
    tool_call_id: str | None = None
    title: JSON = None
    tool_kind: JSON = field(name="kind", default=None)
    status: JSON = None


class Updated(_In, frozen=True):
    """`session/update`."""

    session_id: str
    update: Update


class PermissionOption(_In, frozen=True):
    """One possible answer."""

    option_id: str
    kind: str


class PermissionRequest(_In, frozen=True):
    """`session/request_permission`."""

    session_id: str
    options: tuple[PermissionOption, ...]
    tool_call: JSONObject


def read(data: Raw, kind: type[T]) -> T:
    """The value. Raises: ValueError that names the place that is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
