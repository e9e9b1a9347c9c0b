"""What is configured about a server, in the format that other programs use, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from retinue.errors import ConfigError
from retinue.plugins.shell.environment import is_secret_name
from retinue.plugins.variables import filled

__all__ = ["ServerConfig", "checked", "read_servers", "resolved", "secret_values"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")


class ServerConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One server: a program that speaks over its standard streams, or an address."""

    type: str | None = None
    """`stdio` or `http`; follows from the rest if absent."""
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """All that the program sees besides the plain variables; `${NAME}` and `${NAME:-default}` are filled in."""
    cwd: str | None = None
    """The program's folder; the project's if absent."""
    url: str | None = None
    """Of the streamable HTTP endpoint."""
    headers: dict[str, str] = {}
    disabled: bool = False
    timeout_s: float = 120.0
    """Bound of one call."""
    tools: tuple[str, ...] | None = None
    """Only these of its tools, by the server's own names."""
    deny_tools: tuple[str, ...] = ()
    """Never these."""
    read_only: tuple[str, ...] = ()
    """Its tools that only read, which the permission `read-only` may call. A server's own word for it is not taken."""


class _File(Struct, frozen=True):
    mcp_servers: dict[str, ServerConfig] = msgspec.field(name="mcpServers", default_factory=dict[str, ServerConfig])


def read_servers(path: Path) -> dict[str, ServerConfig]:
    """The servers of a file; none if it is not there. Blocks. Raises: ConfigError that names the file and the place."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return msgspec.json.decode(data, type=_File).mcp_servers
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {error}") from error


def resolved(name: str, server: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
    """The server with its variables filled in. Raises: ConfigError for what cannot be meant, or a missing variable."""
    filled = replace(
        server,
        command=None if server.command is None else _fill(name, server.command, environ),
        args=tuple(_fill(name, arg, environ) for arg in server.args),
        env={key: _fill(name, value, environ) for key, value in server.env.items()},
        url=None if server.url is None else _fill(name, server.url, environ),
        headers={key: _fill(name, value, environ) for key, value in server.headers.items()},
    )
    return checked(name, filled)


def checked(name: str, server: ServerConfig) -> ServerConfig:
    """The server as it is. Raises: ConfigError for what cannot be meant."""
    if not _NAME.match(name):
        raise ConfigError(f"MCP server {name!r}: a name has letters, digits, - and _, at most 32")
    if (server.command is None) == (server.url is None):
        raise ConfigError(f"MCP server {name!r}: give either a command or a url")
    if server.type not in (None, "stdio" if server.command else "http", "http" if server.url else "stdio"):
        hint = "; servers of the old type sse are not supported" if server.type == "sse" else ""
        raise ConfigError(f"MCP server {name!r}: type {server.type!r} does not fit{hint}")
    if server.url is not None and not server.url.startswith(("http://", "https://")):
        raise ConfigError(f"MCP server {name!r}: the url must start with http:// or https://")
    if not 0 < server.timeout_s < float("inf"):
        raise ConfigError(f"MCP server {name!r}: timeout_s must be positive and finite, not {server.timeout_s}")
    return server


def secret_values(server: ServerConfig) -> tuple[str, ...]:
    """What the resolved server was told in confidence: variables and headers whose name says so, and what stands in its
    address as a password or under such a name."""
    named = [*server.env.items(), *server.headers.items()]
    found: list[str] = []
    if server.url is not None:
        address = urlsplit(server.url)
        named += parse_qsl(address.query)
        found.append(unquote(address.password or ""))
    for name, value in named:
        if is_secret_name(name):
            found += [value, *value.split()]  # `Bearer TOKEN` is a secret, and so is the token alone
    return tuple(found)


def _fill(name: str, text: str, environ: Mapping[str, str]) -> str:
    return filled(f"MCP server {name!r}", text, environ)
