"""A disk that fails when it is told to, below the real SQLite: everything above it is what runs in earnest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import apsw

__all__ = ["Disk", "Operation", "faulty_disk"]

Operation: TypeAlias = Literal["read", "write", "sync"]


@dataclass(frozen=True)
class _Trouble:
    operation: Operation
    files: str
    after: int
    times: int | None
    error: type[apsw.Error]


class Disk(apsw.VFS):
    """Every file of SQLite goes through it. `counts` says how often what was asked of which kind of file."""

    def __init__(self, name: str) -> None:
        self.counts: Counter[tuple[Operation, str]] = Counter()
        self.failed = 0
        """How often it has failed."""
        self._trouble: _Trouble | None = None
        super().__init__(name, "unix", makedefault=True)

    def fail(
        self,
        operation: Operation,
        files: str,
        after: int,
        error: type[apsw.Error] = apsw.IOError,
        *,
        times: int | None = None,
    ) -> None:
        """From the operation after `after` more on, it fails on files that end so: so many times, or until `mend`."""
        self._trouble = _Trouble(operation, files, self.counts[operation, files] + after, times, error)

    def mend(self) -> None:
        """Everything works again."""
        self._trouble = None

    def ask(self, operation: Operation, file: str) -> None:
        """Count it. Raises: what it was told to fail with."""
        for end in ("-wal", ".db", ""):
            if file.endswith(end):
                self.counts[operation, end] += 1
        trouble = self._trouble
        if trouble is None or trouble.operation != operation or not file.endswith(trouble.files):
            return
        over = self.counts[operation, trouble.files] - trouble.after
        if over > 0 and (trouble.times is None or over <= trouble.times):
            self.failed += 1
            raise trouble.error("the disk was told to fail")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._name = (name.filename() if isinstance(name, apsw.URIFilename) else name) or ""
        super().__init__("unix", name, flags)  # pyright: ignore[reportArgumentType]

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.ask("read", self._name)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.ask("write", self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.ask("sync", self._name)
        super().xSync(flags)


@contextmanager
def faulty_disk() -> Generator[Disk]:
    """Databases that are opened in the block are on this disk."""
    disk = Disk(f"faulty-{os.urandom(4).hex()}")
    try:
        yield disk
    finally:
        apsw.set_default_vfs("unix")
        disk.unregister()
