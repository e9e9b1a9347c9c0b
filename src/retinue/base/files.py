"""Files that appear under their name only when they are whole and on disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from retinue.errors import BadInput

__all__ = ["flush_file", "whole_file"]


@contextmanager
def whole_file(target: Path, *, replace: bool = False) -> Generator[Path]:
    """What the block writes to the path it gets is at `target` afterwards, on disk, for the user alone.

    The path is an empty file beside `target`. If the block raises, nothing is left of it. Blocks. Raises: BadInput
    if there is a `target` that shall not be replaced; OSError.
    """
    if not replace and os.path.lexists(target):
        raise _taken(target)
    fresh = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield fresh
        flush_file(fresh)
        if replace:
            fresh.replace(target)
        else:
            _place(fresh, target)
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()
    flush_file(target.parent)


def _place(fresh: Path, target: Path) -> None:
    try:
        os.link(fresh, target)  # unlike a renaming, it never takes the place of what came in between
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError:  # a file system without links
        fresh.replace(target)


def _taken(target: Path) -> BadInput:
    return BadInput(f"{str(target)!r} exists already; choose another name, or replace it with --force")


def flush_file(path: str | Path) -> None:
    """The file or folder is on disk. Blocks. Raises: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd) if os.path.isfile(path) else os.fsync(fd)
    finally:
        os.close(fd)
