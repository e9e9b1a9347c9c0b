"""Confining commands: each runs where the permission of its agent is a wall of the kernel, not a promise.

Made with bubblewrap where it is installed and works. A confined command sees the file system read-only; under
`workspace-write` its agent's folder can be written, but not the hooks and the configuration of its repository, and not
the files that configure Retinue. It has a `/tmp` of its own, which lasts as long as the agent and is seen by nobody
else, no network unless it is configured, no capability, and no process of others. Retinue's home and files with keys
are empty for it. When the command ends, all that it started ends.

Without bubblewrap commands run unconfined, and that is said loudly; `required` refuses them instead. `full-access` is
never confined: that is what it means.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import ToolFailure
from retinue.host.host import Host, Seam
from retinue.plugins.permissions import PERMISSIONS, Preset
from retinue.plugins.permissions.presets import GOVERNING
from retinue.tools.tool import Caller

__all__ = ["OPTIONS", "SANDBOX", "Sandbox", "SandboxConfig", "plugin"]

_log = logging.getLogger("retinue")

_PROBE_S = 10.0
_EMPTY = "/dev/null"
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SOCKETS = ("/run", "/var/run")
"""Where other programs of the machine listen, some of which do what anybody asks who reaches them."""


class SandboxConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How commands are confined."""

    network: bool = False
    """Confined commands may use the network."""
    required: bool = False
    """Without a sandbox, commands are refused unless the permission is `full-access`."""
    hidden: tuple[str, ...] = ()
    """Further files and folders that are empty for commands; absolute, `~` is filled in."""


OPTIONS = SandboxConfig


class Sandbox:
    """Confines the commands of one host."""

    def __init__(
        self,
        config: SandboxConfig,
        *,
        writable: Iterable[Path] = (),
        closed: Iterable[Path] = (),
        program: str | None = None,
    ) -> None:
        """`writable` folders may be changed like an agent's own; `closed` files and folders are empty for commands.

        `program` is the path of bubblewrap; None looks for it.
        """
        self._config = config
        self._writable = tuple(writable)
        self._closed = (*closed, *(Path(os.path.expanduser(path)) for path in config.hidden))
        self._program = shutil.which("bwrap") if program is None else program
        self._why_not = "" if self._program else "bubblewrap (bwrap) is not installed"
        self._is_probed = False
        self._folders: dict[SessionId, Path] = {}

    @property
    def is_there(self) -> bool:
        """Commands are confined, as far as is known: before the first one it has not been tried."""
        return not self._why_not

    @property
    def describes(self) -> str:
        """What a confined command may do, for whoever runs one; empty without a sandbox."""
        if not self.is_there:
            return ""
        network = "can use the network" if self._config.network else "have no network"
        return f"Commands are confined: they {network}, and write only where you may write files, and in /tmp."

    async def confine(self, argv: Sequence[str], caller: Caller, preset: Preset) -> tuple[str, ...] | None:
        """The command line that runs `argv` confined; None if nothing can confine it here.

        Raises: ToolFailure `NO_SANDBOX` if the configuration requires one.
        """
        if not await self._is_usable():
            return None
        return (*await to_thread.run_sync(self._arguments, caller, preset), "--", *argv)

    def watch(self, caller: Caller) -> Callable[[], list[str]]:
        """Call it before a confined command starts, and what it returns when the command has ended.

        A file that configures Retinue or git and was not there can be made by a command, since nothing can be mounted
        where nothing is. Made meanwhile, it has another name afterwards; what is returned says so. Both block for a few
        stat calls.
        """
        obeyed = (*GOVERNING, *(f".git/{name}" for name in _GIT_OBEYS))
        names = (*(root / name for root in self._roots(caller) for name in obeyed), *self._closed)
        missing = [path for path in names if not os.path.lexists(path)]

        def set_aside() -> list[str]:
            return [said for path in missing if (said := _set_aside(path))]

        return set_aside

    async def enclose(self, argv: Sequence[str], *, readable: Iterable[Path]) -> tuple[str, ...] | None:
        """The command line that runs `argv` where there is nothing but the programs of the system and the `readable`
        folders, all read-only: no home, no project, no network, no process of others. None without a sandbox.

        Raises: ToolFailure `NO_SANDBOX` if the configuration requires one.
        """
        if not await self._is_usable():
            return None
        assert self._program is not None
        arguments = [self._program, *_BASE, "--clearenv", *await to_thread.run_sync(_programs)]
        for path in readable:
            arguments += ["--ro-bind", str(path), str(path)]
        return (*arguments, "--chdir", "/", "--", *argv)

    async def _is_usable(self) -> bool:
        """Raises: ToolFailure `NO_SANDBOX` if it is not, and the configuration requires one."""
        if not self._is_probed:
            await to_thread.run_sync(self._probe)
        if self._why_not and self._config.required:
            raise ToolFailure("NO_SANDBOX", f"commands are refused: a sandbox is required, and {self._why_not}")
        return not self._why_not

    def _probe(self) -> None:
        """Whether a sandbox can really be made here: some systems forbid it to ordinary users. Blocks."""
        self._is_probed = True
        if self._program is None:
            return
        argv = [self._program, *_BASE, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "/bin/true"]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S, check=False
            )
            said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            self._why_not = "" if done.returncode == 0 else f"bubblewrap does not work here ({said[0]})"
        except (OSError, subprocess.TimeoutExpired) as error:
            self._why_not = f"bubblewrap cannot be run ({error})"

    @property
    def why_not(self) -> str:
        """Why nothing is confined; empty if it is."""
        return self._why_not

    def _arguments(self, caller: Caller, preset: Preset) -> list[str]:
        assert self._program is not None
        cwd = caller.cwd.resolve()
        arguments = [self._program, *_BASE]
        if self._config.network:
            arguments.append("--share-net")
        arguments += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for folder in _SOCKETS:
            if os.path.isdir(folder) and not os.path.islink(folder):
                arguments += ["--tmpfs", folder]
        if self._config.network:
            arguments += _resolver()
        arguments += ["--bind", str(self._temporary(caller)), "/tmp"]
        roots = self._roots(caller)
        closed = [path.resolve() for path in self._closed]
        around = [path for path in closed if any(root.is_relative_to(path) for root in roots)]
        for path in around:
            arguments += _hide(path)
        for root in roots:
            arguments += ["--bind" if preset == "workspace-write" else "--ro-bind", str(root), str(root)]
            if preset == "workspace-write":
                arguments += _kept(root)
        for path in closed:
            arguments += _hide(path) if path not in around else []
        return [*arguments, "--chdir", str(cwd), "--setenv", "TMPDIR", "/tmp"]

    def _roots(self, caller: Caller) -> list[Path]:
        writable = (root.resolve() for root in self._writable if root.is_dir())
        return list(dict.fromkeys((caller.cwd.resolve(), *writable)))

    def _temporary(self, caller: Caller) -> Path:
        folder = self._folders.get(caller.id)
        if folder is None:
            folder = self._folders[caller.id] = Path(tempfile.mkdtemp(prefix="retinue-"))
        return folder

    def forget(self, id: SessionId) -> None:
        """The agent is gone, and its `/tmp` with it. Blocks."""
        folder = self._folders.pop(id, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """No temporary folder is left."""
        for id in list(self._folders):
            self.forget(id)


# Without --cap-drop ALL, root could write the read-only root again by mounting it anew.
_BASE = ("--unshare-all", "--cap-drop", "ALL", "--die-with-parent", "--new-session")


def _programs() -> list[str]:
    """The programs and libraries of the system, where programs look for them."""
    arguments: list[str] = []
    for folder in _PROGRAMS:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            arguments += ["--ro-bind", folder, folder]
    return arguments


_GIT_OBEYS = ("config", "config.worktree", "commondir")
"""Files of a repository that name programs which git starts, or where else such files are."""


def _kept(root: Path) -> list[str]:
    """What Retinue and git obey stays as it is: it would run unconfined, in the user's hands."""
    arguments = [part for name in GOVERNING for part in _as_is(root / name)]
    git = root / ".git"
    if not git.is_dir():
        return [*arguments, *_as_is(git)]  # in a work tree, a file that says where the repository is
    # A mount of its own, so that it cannot be moved away and be replaced by a copy.
    arguments += ["--bind", str(git), str(git), *(part for name in _GIT_OBEYS for part in _as_is(git / name))]
    return [*arguments, *(_as_is(git / "hooks") or ["--tmpfs", str(git / "hooks")])]


def _as_is(path: Path) -> list[str]:
    return ["--ro-bind", str(path), str(path)] if path.exists() else []


def _set_aside(path: Path) -> str:
    if not os.path.lexists(path):
        return ""
    aside = path.with_name(f"{path.name}.{os.urandom(3).hex()}")
    with suppress(OSError):
        path.rename(aside)
        said = f"no command of an agent may make {path}; what it made is called {aside.name} now"
        _log.warning("%s", said)
        return said
    return ""


def _hide(real: Path) -> list[str]:
    if real.is_dir():
        return ["--tmpfs", str(real)]
    return ["--ro-bind", _EMPTY, str(real)] if real.exists() else []


def _resolver() -> list[str]:
    """Names are resolved as outside, also where the file that says how lies among the sockets."""
    real = os.path.realpath("/etc/resolv.conf")
    return ["--ro-bind", real, real] if real.startswith(_SOCKETS) and os.path.exists(real) else []


SANDBOX: Seam[Sandbox] = Seam("sandbox")
"""Who confines commands."""


@asynccontextmanager
async def plugin(host: Host, config: SandboxConfig) -> AsyncGenerator[None]:
    """Whoever runs commands can have them confined. Without permissions there is nothing to hold commands to."""
    permissions = host.find(PERMISSIONS)
    if permissions is None:
        yield
        return
    sandbox = Sandbox(config, writable=permissions.writable, closed=permissions.closed)

    async def tidy(agent: Agent) -> None:
        agent.scope.callback(sandbox.forget, agent.id)

    with host.provide(SANDBOX, sandbox), host.agents.on_setup(tidy):
        try:
            yield
        finally:
            await to_thread.run_sync(sandbox.close)
