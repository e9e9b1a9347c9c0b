"""Where a project and a user keep what they wrote for agents: folders from the outside inwards, and front matter.

A project is the nearest folder upwards that holds `.git`. Outside of one, only the folder itself counts: what lies
above it may belong to anybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from anyio import to_thread
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.json import JSONObject
from retinue.base.recent import Recent
from retinue.errors import ConfigError

__all__ = ["MARKED_FOLDERS", "Document", "Found", "files_named", "project_folders", "read_document", "user_folders"]

MARKED_FOLDERS = (".retinue", ".agents", ".claude")
"""Where a project or a user keeps agents and skills. The first that has a name wins among neighbours."""

T = TypeVar("T")

_MAX_BYTES = 256 * 1024
_FENCE = "---"


class Document(Struct, frozen=True, kw_only=True):
    """A Markdown file with front matter."""

    path: Path
    head: JSONObject
    text: str
    """What follows the front matter, without blank lines at its ends."""


class Found(Generic[T]):
    """What files around a folder say: read anew for each root agent, and shared by its children in the same folder.

    So a child begins with what its parent knows, and a thousand of them read once.
    """

    __slots__ = ("_known", "_read")

    def __init__(self, read: Callable[[Path], T]) -> None:
        """`read` blocks; it is called in a thread."""
        self._read = read
        self._known: Recent[Path, T] = Recent()

    async def of(self, agent: Agent) -> T:
        """What the files around the agent's folder say. Raises: what `read` raises."""
        known = None if agent.session.header.origin is None else self._known.get(agent.cwd)
        if known is None:
            known = await to_thread.run_sync(self._read, agent.cwd)
            self._known.put(agent.cwd, known)
        return known


def project_folders(cwd: Path) -> list[Path]:
    """The folders from the project's root down to `cwd`, or `cwd` alone if it is in no project."""
    cwd = Path(os.path.abspath(cwd))
    chain = [cwd, *cwd.parents]
    for depth, folder in enumerate(chain):
        if (folder / ".git").exists():
            return chain[: depth + 1][::-1]
    return [cwd]


def user_folders(environ: Mapping[str, str]) -> list[Path]:
    """The user's own folders with agents and skills, those that count less first."""
    home = environ.get("HOME", "").strip()
    config = environ.get("XDG_CONFIG_HOME", "").strip() or (f"{home}/.config" if home else "")
    marked = [Path(home) / name for name in reversed(MARKED_FOLDERS[1:])] if home else []
    return [*marked, *([Path(config) / "retinue"] if config else [])]


def files_named(folder: Path, kind: str, pattern: str) -> Iterator[Path]:
    """The files below `folder`/MARKED/`kind` that match, in the order in which later ones win."""
    for marked in reversed(MARKED_FOLDERS):
        yield from sorted(path for path in (folder / marked / kind).glob(pattern) if path.is_file())


def read_document(path: Path) -> Document:
    """The file, taken apart. Blocks. Raises: ConfigError that names the file and what is wrong with it."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES // 1024} kB; keep details in files beside it")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    head, body = _split(text)
    return Document(path=path, head=_mapping(path, head) if head else {}, text=body.strip("\n"))


def _split(text: str) -> tuple[str, str]:
    first, _, rest = text.partition("\n")
    if first.strip() != _FENCE:
        return "", text
    head, fence, body = f"\n{rest}".partition(f"\n{_FENCE}")
    if not fence:
        return "", text
    return head, body.partition("\n")[2]


def _mapping(path: Path, head: str) -> JSONObject:
    import yaml

    try:
        value = yaml.safe_load(head)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: the front matter is no YAML: {' '.join(str(error).split())}") from error
    if value is None:
        return {}
    try:
        return msgspec.convert(value, dict[str, Any])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: the front matter must be a mapping of names to values ({error})") from error
