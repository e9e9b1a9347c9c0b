"""Opening exactly the file that was judged: no link is followed on the way, so a swapped one is an error, no escape.

Every function takes a real path, as `Permissions` returns it, walks to it from the root folder by folder without
following links, and works relative to the folder it reached. All of them block.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from retinue.errors import ToolFailure

__all__ = ["FileTaken", "open_folder", "open_regular", "put_file"]

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileTaken(Exception):
    """A file that should be new is there already."""


@contextmanager
def open_folder(real: Path, *, create: bool = False) -> Generator[int]:
    """A descriptor of the folder for the block; with `create`, missing folders are made.

    Raises: OSError; ToolFailure `PERMISSION_DENIED` if a part of the path is a link by now.
    """
    at = os.open(real.anchor, _FOLDER)
    try:
        for part in real.parts[1:]:
            inner = _enter(at, part, real, create=create)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def open_regular(real: Path) -> BinaryIO:
    """The file for reading; the caller closes it. Never waits for a pipe or a device.

    Raises: OSError; ToolFailure `PERMISSION_DENIED` for a link, `NOT_A_FILE` for what is no regular file.
    """
    with open_folder(real.parent) as folder:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(real.name or ".", flags, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _swapped(real) from error
            raise
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(real))
        if not stat.S_ISREG(mode):
            raise ToolFailure("NOT_A_FILE", f"{real} is a pipe, socket or device, not a file")
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def put_file(real: Path, data: bytes, *, like: os.stat_result | None) -> os.stat_result:
    """The file holds `data`, replaced in one step; mode and, where allowed, owner are those of `like`.

    With `like` None the file is new: missing folders are made, and FileTaken is raised if it exists by now.
    Raises: OSError; ToolFailure `PERMISSION_DENIED` if a part of the path is a link by now.
    """
    with open_folder(real.parent, create=like is None) as folder:
        fresh = f".retinue-{os.urandom(6).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(fresh, flags, 0o666 if like is None else 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                if like is not None:
                    with suppress(OSError):
                        os.fchown(fd, like.st_uid, like.st_gid)
                    os.fchmod(fd, stat.S_IMODE(like.st_mode))
                written = os.fstat(fd)
            if like is None:
                _claim(folder, fresh, real.name)
            else:
                os.replace(fresh, real.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise
        return written


def _claim(folder: int, fresh: str, name: str) -> None:
    """`fresh` is called `name`, unless that exists."""
    try:
        os.link(fresh, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise FileTaken from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links: look, then rename. Another program can come between the two.
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileTaken from None
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(fresh, dir_fd=folder)


def _enter(at: int, part: str, real: Path, *, create: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=at)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        if _is_link(at, part):
            raise _swapped(real) from error
        raise
    with suppress(FileExistsError):
        os.mkdir(part, dir_fd=at)
    return _enter(at, part, real, create=False)


def _is_link(at: int, part: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _swapped(real: Path) -> ToolFailure:
    return ToolFailure(
        "PERMISSION_DENIED", f"{real} was replaced by a link while it was being checked; nothing was done"
    )
