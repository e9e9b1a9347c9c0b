"""What an agent's tools may do to the machine: three presets, asked at execution with real paths.

| preset | read files | write files | run commands |
|---|---|---|---|
| `read-only` | everywhere | nowhere | refused: nothing here keeps a command from writing |
| `workspace-write` | everywhere | inside the agent's folder | yes, **not confined** without a sandbox |
| `full-access` | everywhere | everywhere | yes, not confined |

Under every preset, Retinue's own home, the key files it was told of and the kernel's view of processes stay closed to
the file tools: they hold keys, and opening the database by hand breaks its locks. A command that runs unconfined can
reach whatever its user can; only a sandbox changes that, so `workspace-write` says so once.

This module judges paths. That what is opened is what was judged is the promise of `confined.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias, get_args

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import ConfigError, ToolFailure
from retinue.host.host import Host, Seam
from retinue.session.events import SandboxMode
from retinue.tools.tool import Caller

__all__ = ["OPTIONS", "PERMISSIONS", "Permissions", "PermissionsConfig", "Preset", "plugin"]

Preset: TypeAlias = Literal["read-only", "workspace-write", "full-access"]

_log = logging.getLogger("retinue")


class Permissions:
    """The presets of all sessions of one host. A session without a preset of its own has the default one.

    A child does not inherit by itself: whoever creates it pins its preset with `set`.
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
        return self._presets.get(session_id, self._default)

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

    def check_command(self, caller: Caller) -> None:
        """`caller` may run commands. Raises: ToolFailure `PERMISSION_DENIED`.

        Warns once per host when commands run under `workspace-write`, since nothing confines them.
        """
        match self.preset(caller.id):
            case "read-only":
                reason = "commands are refused, since without a sandbox nothing keeps them from writing"
                self._deny(caller, "running a command", f"{reason}; use the tools that read and search files")
            case "workspace-write":
                if not self._warned:
                    self._warned = True
                    _log.warning(
                        "commands of agents are NOT CONFINED: there is no sandbox, so with the permission "
                        "'workspace-write' only the file tools are kept inside the working folder; a command can read "
                        "and write whatever your user can. Use 'read-only' to refuse commands."
                    )
            case "full-access":
                pass

    def closed_paths(self) -> list[Path]:
        """Real paths that a search leaves out when it comes across them, files and folders."""
        return [path.resolve() for path in (*([self._home] if self._home else []), *self._secrets, Path("/proc"))]

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
    """Tools can ask. An agent whose log pins a preset has that one, also after it was resumed."""
    home = host.options.home
    permissions = Permissions(
        config.preset,
        home=home,
        readable=() if home is None else (home / "spill",),
        writable=[Path(folder) for folder in config.writable],
        secrets=() if host.options.cwd is None else (host.options.cwd / ".env",),
    )

    async def pin(agent: Agent) -> None:
        modes = [event.data for event in agent.session.events if isinstance(event.data, SandboxMode)]
        if modes:
            permissions.set(agent.id, _known(modes[-1].mode))
            agent.scope.callback(permissions.set, agent.id, None)

    with host.provide(PERMISSIONS, permissions), host.agents.on_setup(pin):
        yield
