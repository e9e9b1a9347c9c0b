"""Copies of a whole database, taken while others write to it."""

from __future__ import annotations

import os
from contextlib import suppress

import apsw

from retinue.errors import AlreadyExists, StoreFailure
from retinue.store.sqlite._flusher import flush_file
from retinue.store.sqlite._sql import connect, failure, run

_PATIENCE_STEPS = 100_000
"""Steps of SQLite's machine after which Python looks for signals: a few milliseconds."""


def copy_database(path: str, target: str, *, replace: bool = False) -> None:
    """`target` is a database with all that was committed in the one at `path` when this began. Blocks.

    It is compact and on disk, for the user alone, and appears under its name only when it is whole. Every page is read
    on the way, so a damaged database is not copied. Raises: AlreadyExists, unless it shall `replace` what is there;
    StoreFailure.
    """
    if os.path.lexists(target) and not replace:
        raise AlreadyExists(f"{target!r} exists already; choose another name, or say that it shall be replaced")
    fresh = os.path.join(os.path.dirname(target) or ".", f".{os.path.basename(target)}.{os.urandom(4).hex()}")
    try:
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            _copy(path, fresh)
            flush_file(fresh)
            _place(fresh, target, replace)
        finally:
            for rest in (fresh, fresh + "-journal"):
                with suppress(FileNotFoundError):
                    os.unlink(rest)
        flush_file(os.path.dirname(target) or ".")
    except OSError as error:
        raise StoreFailure(
            f"the copy {target!r} cannot be written: {error.strerror}; "
            "free space, check the folder, or choose another place"
        ) from error


def _copy(path: str, fresh: str) -> None:
    source: apsw.Connection | None = None
    try:
        source = connect(path, read_only=True)
        source.set_progress_handler(lambda: False, _PATIENCE_STEPS)
        run(source, "VACUUM INTO ?", (fresh,))
    except apsw.FullError as error:
        raise failure(error, fresh) from error
    except apsw.Error as error:
        raise failure(error, path) from error
    finally:
        if source is not None:
            source.close()


def _place(fresh: str, target: str, replace: bool) -> None:
    if replace:
        os.replace(fresh, target)
        return
    try:
        os.link(fresh, target)  # unlike a renaming, it never takes the place of what came in between
    except FileExistsError as error:
        raise AlreadyExists(f"{target!r} was made by somebody else just now; choose another name") from error
    except OSError:  # a file system without links
        os.replace(fresh, target)
