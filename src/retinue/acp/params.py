"""What clients ask and answer: the parameters of each method, and the result of the one that asks them."""

from __future__ import annotations

from msgspec import Raw

from retinue.acp.wire import Received
from retinue.base.json import JSON

__all__ = [
    "AuthenticateParams",
    "CancelParams",
    "CloseParams",
    "InitializeParams",
    "ListParams",
    "LoadParams",
    "McpServer",
    "NameValue",
    "NewParams",
    "PermissionAnswer",
    "PromptParams",
    "SetModeParams",
]


class InitializeParams(Received, frozen=True):
    """`initialize`. Capabilities are read one by one, since a bad one shall not spoil the others."""

    protocol_version: int
    client_capabilities: JSON = None


class AuthenticateParams(Received, frozen=True):
    """`authenticate`."""

    method_id: str


class NameValue(Received, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class McpServer(Received, frozen=True):
    """A server of tools: a program, unless it says `http`."""

    name: str
    type: str = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    url: str | None = None
    headers: tuple[NameValue, ...] = ()


class NewParams(Received, frozen=True):
    """`session/new`."""

    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] = ()


class LoadParams(NewParams, frozen=True, kw_only=True):
    """`session/load` and `session/resume`."""

    session_id: str


class ListParams(Received, frozen=True):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class CloseParams(Received, frozen=True):
    """`session/close`."""

    session_id: str


class CancelParams(Received, frozen=True):
    """`session/cancel`."""

    session_id: str


class SetModeParams(Received, frozen=True):
    """`session/set_mode`."""

    session_id: str
    mode_id: str


class PromptParams(Received, frozen=True):
    """`session/prompt`. Blocks are read one by one, so that the error names the one that is wrong."""

    session_id: str
    prompt: tuple[Raw, ...]


class _PermissionOutcome(Received, frozen=True):
    outcome: str
    option_id: str | None = None


class PermissionAnswer(Received, frozen=True):
    """The result of `session/request_permission`."""

    outcome: _PermissionOutcome
