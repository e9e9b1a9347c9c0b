"""Which content of which file each session has seen, so that no agent overwrites what it does not know.

The digest alone decides: a file whose time stamp changed and whose content did not is still the one that was read. The
memory is this process's; after a restart an agent reads a file again before it changes it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from weakref import WeakValueDictionary

from retinue.base.ids import SessionId
from retinue.errors import ToolFailure

_MAX_FILES = 4096
_MAX_AT_REST = 256


class Seen:
    """Content digests by session and real path, and one lock per path. Safe to use from many threads."""

    def __init__(self) -> None:
        self._sessions: dict[SessionId, dict[Path, bytes]] = {}
        self._at_rest: dict[SessionId, None] = {}
        """Sessions without an agent, the one that rests longest first."""
        self._locks: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    @contextmanager
    def locked(self, path: Path) -> Generator[None]:
        """No other thread changes `path` through the file tools during the block."""
        with self._guard:
            lock = self._locks.setdefault(path, threading.Lock())
        with lock:
            yield

    def note(self, session: SessionId, path: Path, data: bytes) -> None:
        """`session` knows that `path` holds `data`."""
        with self._guard:
            self._at_rest.pop(session, None)
            files = self._sessions.setdefault(session, {})
            files.pop(path, None)
            files[path] = _digest(data)
            while len(files) > _MAX_FILES:
                del files[next(iter(files))]

    def has(self, session: SessionId, path: Path) -> bool:
        """True if `session` has seen some content of `path`."""
        with self._guard:
            return path in self._sessions.get(session, {})

    def require(self, session: SessionId, path: Path, data: bytes) -> None:
        """`data` is what `session` last saw of `path`. Raises: ToolFailure `FILE_NOT_READ` or `FILE_CHANGED`."""
        with self._guard:
            known = self._sessions.get(session, {}).get(path)
        if known is None:
            raise ToolFailure("FILE_NOT_READ", f"{path} exists and you have not read it; `read` it before changing it")
        if known != _digest(data):
            raise ToolFailure(
                "FILE_CHANGED",
                f"{path} has changed since you read it (another agent, the user or a command); `read` it again first",
            )

    def rest(self, session: SessionId) -> None:
        """The agent of `session` is gone, and may come back: of sessions at rest the last 256 are remembered."""
        with self._guard:
            if session not in self._sessions:
                return
            self._at_rest.pop(session, None)
            self._at_rest[session] = None
            while len(self._at_rest) > _MAX_AT_REST:
                longest = next(iter(self._at_rest))
                del self._at_rest[longest], self._sessions[longest]


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
