"""Owns who is alive: one file per owner, locked by the operating system for as long as its process lives.

A free lock means a dead owner, whatever the clocks say. The file holds nothing that is needed, only what people want to
know about the process.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress

import msgspec

from retinue.errors import StoreFailure
from retinue.store.sqlite._folder import make_folder

_SUFFIX = ".lock"
_BELL = ".bell"


class OwnerInfo(msgspec.Struct, frozen=True, gc=False):
    """A process as people look for it. `since` is epoch milliseconds."""

    pid: int
    host: str
    since: int


class Owner:
    """This store among all that use one database."""

    def __init__(self, folder: str, now_ms: int) -> None:
        self._folder = folder
        self._fd, self.id = _claim(folder, OwnerInfo(os.getpid(), socket.gethostname(), now_ms))

    def is_alive(self, id: str) -> bool:
        """True while the owner's process holds its lock."""
        if id == self.id:
            return self._fd is not None
        return is_living(self._folder, id)

    def info(self, id: str) -> OwnerInfo | None:
        """What the owner wrote about itself, as far as it is there."""
        return owner_info(self._folder, id)

    def others(self) -> list[OwnerInfo]:
        """All other living owners."""
        return living(self._folder, but=self.id)

    def clean(self) -> None:
        """Files of dead owners are gone."""
        for id in _ids(self._folder):
            if id != self.id:
                _try_lock(_path(self._folder, id), remove=True)
        for id in _ids(self._folder, _BELL):
            if not os.path.exists(_path(self._folder, id)):
                with suppress(OSError):
                    os.unlink(_bell(self._folder, id))

    def close(self) -> None:
        """This owner is dead. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with suppress(OSError):
            os.unlink(_path(self._folder, self.id))
        os.close(fd)
        with suppress(OSError):
            os.rmdir(self._folder)

    def bell(self, id: str) -> str:
        """Where the owner can be rung."""
        return _bell(self._folder, id)


def owners_folder(path: str) -> str:
    """Where the owners of the database at `path` have their files."""
    return path + ".owners"


def living(folder: str, *, but: str | None = None) -> list[OwnerInfo]:
    """The living owners that have a file in `folder`, without the one whose id is `but`."""
    return [info for id in living_ids(folder) if id != but and (info := owner_info(folder, id)) is not None]


def living_ids(folder: str) -> list[str]:
    """The ids of all living owners."""
    return [id for id in _ids(folder) if is_living(folder, id)]


def owner_leftovers(database: str) -> list[str]:
    """The files of owners that died. Whoever opens the store next takes them away."""
    folder = owners_folder(database)
    return [path for id in _ids(folder) if _try_lock(path := _path(folder, id), remove=False)]


def is_living(folder: str, id: str) -> bool:
    """True while the owner's process holds its lock."""
    return _try_lock(_path(folder, id), remove=False) is False


def owner_info(folder: str, id: str) -> OwnerInfo | None:
    """What the owner wrote about itself, as far as it is there."""
    try:
        with open(_path(folder, id), "rb") as file:
            return msgspec.json.decode(file.read(), type=OwnerInfo)
    except (OSError, msgspec.MsgspecError):
        return None


def _path(folder: str, id: str) -> str:
    return os.path.join(folder, id + _SUFFIX)


def _bell(folder: str, id: str) -> str:
    return os.path.join(folder, id + _BELL)


def _ids(folder: str, suffix: str = _SUFFIX) -> list[str]:
    try:
        return sorted(name.removesuffix(suffix) for name in os.listdir(folder) if name.endswith(suffix))
    except FileNotFoundError:
        return []


def _claim(folder: str, info: OwnerInfo) -> tuple[int | None, str]:
    """A locked file under a fresh id; another name if a cleaner took the file before it was locked."""
    for _ in range(100):
        id = os.urandom(8).hex()
        path = _path(folder, id)
        fd = None
        try:
            make_folder(folder)
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, msgspec.json.encode(info))
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd, id
        except (FileNotFoundError, BlockingIOError):
            pass
        except OSError as error:
            if fd is not None:
                os.close(fd)
            raise StoreFailure(
                f"the lock of this process cannot be placed in {folder!r}: {error.strerror}; "
                "the folder of the database must be writable"
            ) from error
        if fd is not None:
            os.close(fd)
    raise StoreFailure(f"the lock of this process in {folder!r} is removed again and again; stop what removes it")


def _try_lock(path: str, *, remove: bool) -> bool | None:
    """True if nobody held the lock, False if somebody does, None if there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if remove else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if remove:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
