"""What an agent's tools may do to the machine: three presets, asked at execution with real paths.

| preset | read files | write files | run commands |
|---|---|---|---|
| `read-only` | everywhere | nowhere | confined; refused without a sandbox, since nothing keeps them from writing |
| `workspace-write` | everywhere | inside the agent's folder | confined; **not confined** without a sandbox |
| `full-access` | everywhere | everywhere | yes, not confined |

Under every preset, Retinue's own home, the key files it was told of and the kernel's view of processes stay closed to
the file tools: they hold keys, and opening the database by hand breaks its locks. A command that runs unconfined can
reach whatever its user can; only a sandbox changes that, so `workspace-write` says so once.

This module judges paths. That what is opened is what was judged is the promise of `confined.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias, get_args

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import ConfigError, ToolFailure, Unauthorized
from retinue.host.context import Contribution
from retinue.host.host import Host, Seam
from retinue.session.events import Event, SandboxMode
from retinue.session.session import Session
from retinue.session.transaction import Receipt
from retinue.subagent.policy import DELEGATION, SANDBOX_POLICY
from retinue.tools.tool import Caller

__all__ = ["OPTIONS", "PERMISSIONS", "Permissions", "PermissionsConfig", "Preset", "plugin"]

Preset: TypeAlias = Literal["read-only", "workspace-write", "full-access"]

_log = logging.getLogger("retinue")

_PRESETS: tuple[Preset, ...] = get_args(Preset)
"""From the least to the most."""

_MEANING: dict[Preset, str] = {
    "read-only": "you can read and search, and whatever would write a file or run a command is refused.",
    "workspace-write": "your file tools change files inside your working folder only.",
    "full-access": "your file tools change files everywhere, except what is closed to all agents.",
}

CONTEXT_ORDER = 110.0
"""Source: behaviour SP-08."""


class Permissions:
    """The presets of all sessions of one host. A session without a preset of its own has the default one.

    What a session's log says about its preset is followed as the log grows: the newest `sandbox/mode` holds, but never
    more than the one that a child was created with.
    """

    def __init__(
        self,
        default: Preset = "workspace-write",
        *,
        home: Path | None = None,
        readable: Iterable[Path] = (),
        writable: Iterable[Path] = (),
        secrets: Iterable[Path] = (),
    ) -> None:
        """`home` is closed except for the folders in `readable`, which may be read; `writable` are folders that
        `workspace-write` may change besides the agent's own; `secrets` are files with keys.

        Raises: ConfigError for an unknown preset.
        """
        self._default: Preset = _known(default)
        self._presets: dict[SessionId, Preset] = {}
        self._given: dict[SessionId, Preset] = {}
        """What a child was created with, the most that it may have."""
        self._home = home
        self._readable = tuple(readable)
        self._writable = tuple(writable)
        self._secrets = tuple(secrets)
        self._warned = False

    def set(self, session_id: SessionId, preset: Preset | None) -> None:
        """`session_id` has `preset` from its next call on; None = the default again."""
        if preset is None:
            self._presets.pop(session_id, None)
        else:
            self._presets[session_id] = _known(preset)

    def preset(self, session_id: SessionId) -> Preset:
        """What `session_id` may do now."""
        return self.override(session_id) or self._default

    def override(self, session_id: SessionId) -> Preset | None:
        """The preset that was set for `session_id` explicitly, or None if it has the default."""
        chosen, given = self._presets.get(session_id), self._given.get(session_id)
        if chosen is None or given is None:
            return chosen or given
        return chosen if _PRESETS.index(chosen) <= _PRESETS.index(given) else given

    def switch(self, agent: Agent, preset: Preset) -> Receipt:
        """The live `agent` has `preset` from its next call on, and after every resume; its log says so.

        Awaiting the receipt waits until that is durable. Raises: ConfigError for an unknown preset; Unauthorized if it
        is more than a child was created with; the failure of a dropped session.
        """
        given = self._given.get(agent.id)
        if given is not None and _PRESETS.index(_known(preset)) > _PRESETS.index(given):
            raise Unauthorized(
                f"agent {agent.id!r} was started with the permission {given!r} and cannot be given {preset!r}"
            )
        tx = agent.transaction()
        tx.append(agent.session, SandboxMode(_known(preset), "user"))
        return tx.submit()

    def capture(self, agent: Agent) -> tuple[SandboxMode, ...]:
        """What gives a child the agent's explicit preset of this instant; nothing if the agent has the default."""
        mode = self.override(agent.id)
        return () if mode is None else (SandboxMode(mode, DELEGATION),)

    def follow(self, session: Session, events: Sequence[Event]) -> None:
        """What these events of the session's log say about its preset holds from now on."""
        for event in events:
            if type(event.data) is SandboxMode:
                mode = event.data.mode if event.data.mode in _PRESETS else "read-only"
                self._presets[session.id] = _known(mode)
                if event.data.source == DELEGATION:
                    self._given[session.id] = _known(mode)

    def forget(self, session_id: SessionId) -> None:
        """The session is not live any more; its log alone knows its preset."""
        self._presets.pop(session_id, None)
        self._given.pop(session_id, None)

    def context(self, agent: Agent) -> str:
        """What the agent is told about its preset; nothing if it has the default."""
        mode = self.override(agent.id)
        return "" if mode is None else f"Your permission is `{mode}`: {_MEANING[mode]}"

    def check_read(self, caller: Caller, path: str | Path) -> Path:
        """The real path of `path`, links followed, that `caller` may read; it need not exist. Relative to its folder.

        Raises: ToolFailure `PERMISSION_DENIED` with preset, path and what is allowed. Blocks for a few stat calls.
        """
        real = _real(caller, path)
        closed = self._closed(real)
        if closed:
            self._deny(caller, f"reading {real}", closed)
        return real

    def check_write(self, caller: Caller, path: str | Path) -> Path:
        """The real path of `path`, links followed, that `caller` may create or change. Relative to its folder.

        Raises: ToolFailure `PERMISSION_DENIED` with preset, path and what is allowed. Blocks for a few stat calls.
        """
        real = _real(caller, path)
        closed = self._closed(real, writing=True)
        if closed:
            self._deny(caller, f"writing {real}", closed)
        match self.preset(caller.id):
            case "full-access":
                return real
            case "read-only":
                self._deny(caller, f"writing {real}", "no file may be changed")
            case "workspace-write":
                roots = [root.resolve() for root in (caller.cwd, *self._writable)]
                if not any(real.is_relative_to(root) for root in roots):
                    self._deny(caller, f"writing {real}", f"files may be changed inside {_listed(roots)} only")
                if any(".git" in real.relative_to(root).parts for root in roots if real.is_relative_to(root)):
                    self._deny(caller, f"writing {real}", "what is in `.git` is changed by git commands only")
                return real

    @property
    def writable(self) -> tuple[Path, ...]:
        """Folders that `workspace-write` may change besides the agent's own."""
        return self._writable

    @property
    def closed(self) -> tuple[Path, ...]:
        """Files and folders that are closed to all agents, as far as they are known by name."""
        return (*([self._home] if self._home else []), *self._secrets)

    def check_command(self, caller: Caller, *, why_unconfined: str = "there is no sandbox") -> None:
        """`caller` may run commands unconfined. Raises: ToolFailure `PERMISSION_DENIED`.

        `why_unconfined` says why nothing confines them. Warns once per host when commands run so under
        `workspace-write`.
        """
        match self.preset(caller.id):
            case "read-only":
                reason = f"commands are refused, since nothing keeps them from writing: {why_unconfined}"
                self._deny(caller, "running a command", f"{reason}; use the tools that read and search files")
            case "workspace-write":
                if not self._warned:
                    self._warned = True
                    _log.warning(
                        "commands of agents are NOT CONFINED: %s. With the permission 'workspace-write' only the file "
                        "tools are kept inside the working folder; a command can read and write whatever your user "
                        "can. Use 'read-only' to refuse commands.",
                        why_unconfined,
                    )
            case "full-access":
                pass

    def check_foreign(self, caller: Caller, tool: str) -> None:
        """`caller` may call a tool of another program, whose effects nobody here knows.

        Raises: ToolFailure `PERMISSION_DENIED`.
        """
        if self.preset(caller.id) == "read-only":
            self._deny(caller, f"calling {tool}", "it belongs to another program, which may change anything")

    def closed_paths(self) -> list[Path]:
        """Real paths that a search leaves out when it comes across them, files and folders."""
        return [path.resolve() for path in (*self.closed, Path("/proc"))]

    def _closed(self, real: Path, *, writing: bool = False) -> str:
        """Why nobody may touch `real`, or an empty string."""
        for secret in self._secrets:
            if _inside(real, secret):
                return "files that hold keys are closed to agents"
        excepted = not writing and any(_inside(real, folder) for folder in self._readable)
        if self._home is not None and not excepted and _inside(real, self._home):
            return "Retinue's own home is closed to agents"
        if real.parts[:2] == ("/", "proc") and (len(real.parts) == 2 or real.parts[2].isdigit()):
            return "the kernel's files about processes are closed to agents"
        return ""

    def _deny(self, caller: Caller, what: str, why: str) -> NoReturn:
        preset = self.preset(caller.id)
        raise ToolFailure("PERMISSION_DENIED", f"{what} is not allowed with the permission {preset!r}: {why}")


def _known(preset: str) -> Preset:
    match preset:
        case "read-only" | "workspace-write" | "full-access":
            return preset
        case _:
            raise ConfigError(f"there is no permission {preset!r}; there are {', '.join(get_args(Preset))}")


def _real(caller: Caller, path: str | Path) -> Path:
    try:
        text = os.path.expanduser(path)
        if not str(text):
            raise ValueError("the path is empty")
        return Path(os.path.realpath(os.path.join(caller.cwd, text)))
    except (ValueError, OSError) as error:
        raise ToolFailure("BAD_PATH", f"{str(path)!r} is no usable path: {error}") from None


def _inside(real: Path, root: Path) -> bool:
    """By name or by identity: also when another spelling, as on a case-blind file system, leads to `root`."""
    if real.is_relative_to(root.resolve()):
        return True
    try:
        wanted = root.stat()
    except OSError:
        return False
    return any(os.path.samestat(found, wanted) for found in _stats(real))


def _stats(real: Path) -> Iterator[os.stat_result]:
    for part in (real, *real.parents):
        try:
            yield part.stat()
        except OSError:
            continue


def _listed(roots: list[Path]) -> str:
    return " and ".join(str(root) for root in dict.fromkeys(roots))


PERMISSIONS: Seam[Permissions] = Seam("permissions")
"""Where tools ask what they may do."""


class PermissionsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What tools may do."""

    preset: Preset = "workspace-write"
    writable: tuple[str, ...] = ()
    """Folders that `workspace-write` may change besides the agent's own; absolute."""


OPTIONS = PermissionsConfig


@asynccontextmanager
async def plugin(host: Host, config: PermissionsConfig) -> AsyncGenerator[None]:
    """Tools can ask. An agent whose log pins a preset has that one, also after it was resumed, is told of it, and gives
    it to the children that it starts."""
    home = host.options.home
    permissions = Permissions(
        config.preset,
        home=home,
        readable=() if home is None else (home / "spill",),
        writable=[Path(folder) for folder in config.writable],
        secrets=() if host.options.cwd is None else (host.options.cwd / ".env",),
    )

    async def pin(agent: Agent) -> None:
        permissions.follow(agent.session, agent.session.events)
        agent.scope.callback(permissions.forget, agent.id)

    told = Contribution(name="sandbox:policy", order=CONTEXT_ORDER, text=permissions.context)
    with (
        host.provide(PERMISSIONS, permissions),
        host.provide(SANDBOX_POLICY, permissions.capture),
        host.sessions.observe(permissions.follow),
        host.agents.on_setup(pin),
        host.context.add(told),
    ):
        yield
