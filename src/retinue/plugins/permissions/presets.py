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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn
from weakref import WeakValueDictionary

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import ToolFailure, Unauthorized
from retinue.plugins.permissions.standing import Preset, Standing, known_preset, least
from retinue.session.events import Event, SandboxMode, SessionHeader
from retinue.session.session import Session
from retinue.session.transaction import Receipt
from retinue.subagent.policy import DELEGATION
from retinue.tools.tool import Caller

__all__ = ["GOVERNING", "Permissions"]

_log = logging.getLogger("retinue")

GOVERNING = ("retinue.yaml", "retinue.yml", ".mcp.json")
"""Files of a folder that Retinue obeys at its next start: whoever may write them has every permission."""

_MEANING: dict[Preset, str] = {
    "read-only": "you can read and search, and whatever would write a file or run a command is refused.",
    "workspace-write": "your file tools change files inside your working folder only.",
    "full-access": "your file tools change files everywhere, except what is closed to all agents.",
}


class Permissions:
    """The presets of all sessions of one host. A session without a preset of its own has the default one.

    What a session's log says about its preset is followed as the log grows: the newest `sandbox/mode` holds, but never
    more than the one that a child was created with, and never more than anyone above it has at that moment.
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
        `workspace-write` may change besides the agent's own; `secrets` are files and folders that are closed to all.

        Raises: ConfigError for an unknown preset.
        """
        self._default: Preset = known_preset(default)
        self._here: dict[SessionId, Standing] = {}
        self._known: WeakValueDictionary[SessionId, Standing] = WeakValueDictionary()
        """Those that are here, and whoever is above one of them."""
        self._home = home
        self._readable = tuple(readable)
        self._writable = tuple(writable)
        self._secrets = tuple(secrets)
        self._warned = False

    def standing(self, session_id: SessionId) -> Standing | None:
        """What is known of the session; None if neither it nor anybody below it is here."""
        return self._known.get(session_id)

    def enter(self, session: Session, above: Standing | None = None) -> Standing:
        """The session is here, below `above`, with what its log says by now. `forget` takes it away again."""
        standing = self._here[session.id] = self.learn(session.header, session.events, above)
        return standing

    def learn(self, header: SessionHeader, events: Sequence[Event], above: Standing | None = None) -> Standing:
        """The standing that a log gives, kept as long as the session, somebody below it or the caller needs it."""
        standing = self._known.get(header.id)
        if standing is None:
            standing = Standing(header, above)
            standing.follow(events)
            self._known[header.id] = standing
        return standing

    def set(self, session_id: SessionId, preset: Preset | None) -> None:
        """`session_id` has `preset` from its next call on; None = the default again."""
        standing = self._known.get(session_id)
        if standing is None:
            standing = self._known[session_id] = Standing(SessionHeader(id=session_id, created_at=0))
        standing.chosen = None if preset is None else known_preset(preset)
        self._here[session_id] = standing

    def preset(self, session_id: SessionId) -> Preset:
        """What `session_id` may do now: its own preset, or less if anybody above it has less by now."""
        standing = self._known.get(session_id)
        own = self._default if standing is None else standing.preset or self._default
        above = None if standing is None else standing.above
        while above is not None:
            own, above = least(own, above.preset or self._default), above.above
        return own

    def override(self, session_id: SessionId) -> Preset | None:
        """The preset that was set for `session_id` explicitly, or None if it has the default."""
        standing = self._known.get(session_id)
        return None if standing is None else standing.preset

    def switch(self, agent: Agent, preset: Preset) -> Receipt:
        """The live `agent` has `preset` from its next call on, and after every resume, and nobody below it has more;
        its log says so.

        Awaiting the receipt waits until that is durable. Raises: ConfigError for an unknown preset; Unauthorized if it
        is more than a child was created with; the failure of a dropped session.
        """
        standing = self._known.get(agent.id)
        given = None if standing is None else standing.given
        if given is not None and least(known_preset(preset), given) != preset:
            raise Unauthorized(
                f"agent {agent.id!r} was started with the permission {given!r} and cannot be given {preset!r}"
            )
        tx = agent.transaction()
        tx.append(agent.session, SandboxMode(known_preset(preset), "user"))
        return tx.submit()

    def capture(self, agent: Agent) -> tuple[SandboxMode, ...]:
        """What gives a child the agent's explicit preset of this instant; nothing if the agent has the default."""
        mode = self.override(agent.id)
        return () if mode is None else (SandboxMode(mode, DELEGATION),)

    def follow(self, session: Session, events: Sequence[Event]) -> None:
        """What these events of the session's log say holds from now on."""
        standing = self._known.get(session.id)
        if standing is not None:
            standing.follow(events)

    def forget(self, session_id: SessionId) -> None:
        """The session is not live any more; its log alone knows its preset, unless somebody below it is here."""
        self._here.pop(session_id, None)

    def context(self, agent: Agent) -> str:
        """What the agent is told about its preset; nothing if it and everybody above it have the default."""
        standing, is_set = self._known.get(agent.id), False
        while standing is not None and not is_set:
            standing, is_set = standing.above, standing.preset is not None
        mode = self.preset(agent.id)
        return f"Your permission is `{mode}`: {_MEANING[mode]}" if is_set else ""

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
                inner = {
                    part.lower() for root in roots if real.is_relative_to(root) for part in real.relative_to(root).parts
                }
                if ".git" in inner:
                    self._deny(caller, f"writing {real}", "what is in `.git` is changed by git commands only")
                if real.name.lower() in GOVERNING:
                    self._deny(caller, f"writing {real}", "it says what agents may do and what is started for them")
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
                return "it is closed to agents, as files with keys are"
        excepted = not writing and any(_inside(real, folder) for folder in self._readable)
        if self._home is not None and not excepted and _inside(real, self._home):
            return "Retinue's own home is closed to agents"
        if real.parts[:2] == ("/", "proc") and (len(real.parts) == 2 or real.parts[2].isdigit()):
            return "the kernel's files about processes are closed to agents"
        return ""

    def _deny(self, caller: Caller, what: str, why: str) -> NoReturn:
        preset = self.preset(caller.id)
        raise ToolFailure("PERMISSION_DENIED", f"{what} is not allowed with the permission {preset!r}: {why}")


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
