"""Owns the file and its schema version: creates, recognises and migrates a database, and leaves a foreign one alone.

A new version is a new file in `migrations`; nothing else needs to know.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import apsw

from retinue.errors import SchemaTooNew, StoreFailure
from retinue.store.sqlite._copy import copy_database
from retinue.store.sqlite._folder import make_folder
from retinue.store.sqlite._owners import living, owners_folder
from retinue.store.sqlite._sql import Transaction, connect, failure, run

APPLICATION_ID = 0x52744E31
"""What marks a database as ours; it never changes."""

_MAGIC = b"SQLite format 3\x00"
_APPLICATION_ID_AT = 68
"""Source: https://sqlite.org/fileformat2.html#database_header."""

MIGRATIONS: tuple[str, ...] = tuple(
    part.read_text(encoding="utf-8") for part in sorted(Path(__file__).with_name("migrations").glob("*.sql"))
)
"""Entry n brings version n to version n + 1."""


def open_database(path: str, *, read_only: bool, migrations: Sequence[str] = MIGRATIONS) -> apsw.Connection:
    """A connection to our database of the newest schema; a missing file is created unless `read_only`.

    An older database is brought forward in one transaction, with a copy of what it was kept beside it, named after its
    version. Raises: SchemaTooNew; StoreFailure if the file is missing (read only), is not ours or cannot be used, or if
    it is older and another process works with it.
    """
    if not read_only:
        _create_file(path)
    elif not os.path.exists(path):
        raise StoreFailure(f"there is no database at {path!r}; check the path, or run an agent there first")
    connection = None
    try:
        is_empty = _recognise(path)
        connection = connect(path, read_only=read_only)
        if not read_only:
            if is_empty:
                # Before WAL, so that the mark is in the file itself from the first moment.
                run(connection, f"PRAGMA application_id = {APPLICATION_ID}")
            run(connection, "PRAGMA journal_mode = WAL")
        _migrate(connection, path, read_only, migrations)
        connection.set_busy_timeout(0)
    except apsw.Error as error:
        if connection is not None:
            connection.close()
        raise failure(error, path) from error
    except StoreFailure:
        if connection is not None:
            connection.close()
        raise
    return connection


def _create_file(path: str) -> None:
    try:
        make_folder(os.path.dirname(path) or ".")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise StoreFailure(f"the database {path!r} cannot be created: {error.strerror}; choose another path") from error


def _recognise(path: str) -> bool:
    """True for an empty file. Raises: StoreFailure if the file is not one of ours, or was emptied by somebody.

    The header is read through SQLite's own file layer: closing a file that was opened by hand would drop the locks that
    another connection of this process holds on it.
    """
    size = os.path.getsize(path)
    if size == 0:
        log = f"{path}-wal"
        if os.path.exists(log) and os.path.getsize(log):
            raise StoreFailure(
                f"the database {path!r} is empty, and {log!r} beside it is not: it was cut off; restore a copy of "
                "both, or move the log away to begin anew"
            )
        return True
    file = apsw.VFSFile("", os.path.abspath(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        header = file.xRead(100, 0) if size >= 100 else b""
    finally:
        file.xClose()
    mark = header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    if not header.startswith(_MAGIC) or mark != APPLICATION_ID.to_bytes(4, "big"):
        raise StoreFailure(f"{path!r} is not a database of Retinue, so it is left alone; choose another path")
    return False


def _version(connection: apsw.Connection) -> int:
    return int(str(run(connection, "PRAGMA user_version")[0][0]))


def check_version(connection: apsw.Connection, path: str, *, newest: int = len(MIGRATIONS)) -> None:
    """Return if this program knows the database's schema. Raises: SchemaTooNew."""
    version = _version(connection)
    if version > newest:
        raise SchemaTooNew(
            f"the database {path!r} has schema version {version}, and this Retinue knows versions up to {newest}; "
            "use the version of Retinue that wrote it, or a newer one"
        )


def _migrate(connection: apsw.Connection, path: str, read_only: bool, migrations: Sequence[str]) -> None:
    newest = len(migrations)
    check_version(connection, path, newest=newest)
    if (version := _version(connection)) == newest:
        return
    if read_only:
        raise StoreFailure(
            f"the database {path!r} has schema version {version} and must be brought to {newest} first; "
            "open it once for writing"
        )
    with Transaction(connection, "IMMEDIATE"):
        check_version(connection, path, newest=newest)  # once more: another process may have been faster
        version = _version(connection)
        if 0 < version < newest:
            _refuse_if_used(path, version, newest)
            copy_database(path, f"{path}.v{version}", replace=True)
        for number in range(version, newest):
            run(connection, migrations[number])
            run(connection, f"PRAGMA user_version = {number + 1}")


def _refuse_if_used(path: str, version: int, newest: int) -> None:
    """A process that works with the older schema would write what it means into tables that mean something else."""
    users = " and ".join(f"process {info.pid} on {info.host}" for info in living(owners_folder(path)))
    if users:
        raise StoreFailure(
            f"the database {path!r} has schema version {version} and must be brought to {newest}, but {users} works "
            "with it; end that process, then try again"
        )


def is_unborn(path: Path) -> bool:
    """It is a database, and nothing was ever stored in it: its tables come with its schema's first version."""
    try:
        connection = connect(str(path), read_only=True)
        try:
            return run(connection, "SELECT count(*) FROM sqlite_schema") == [(0,)]
        finally:
            connection.close()
    except apsw.Error:
        return False
