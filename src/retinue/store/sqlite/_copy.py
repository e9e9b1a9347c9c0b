"""Copies of a whole database, taken while others write to it."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EIO
from pathlib import Path

import apsw

from retinue.base.files import whole_file
from retinue.errors import StoreFailure
from retinue.store.sqlite._sql import connect, failure, run

_PATIENCE_STEPS = 100_000
"""Steps of SQLite's machine after which Python looks for signals: a few milliseconds."""


def copy_database(path: str, target: str, *, replace: bool = False) -> None:
    """`target` is a database with all that was committed in the one at `path` when this began. Blocks.

    It is compact and on disk, for the user alone, and appears under its name only when it is whole. Every page is read
    on the way, so a damaged database is not copied. Raises: BadInput, unless it shall `replace` what is there;
    StoreFailure.
    """
    try:
        with whole_file(Path(target), replace=replace) as fresh:
            try:
                _copy(path, str(fresh))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(f"{fresh}-journal")
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
    except (apsw.FullError, apsw.IOError) as error:
        raise OSError(EIO, f"the disk is full, or failed to read {path!r} or to write ({error})") from error
    except apsw.Error as error:
        raise failure(error, path) from error
    finally:
        if source is not None:
            source.close()
