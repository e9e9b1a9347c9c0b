"""Owns the connection to the database: opening with the project's settings, SQL by name, and failures as ours."""

# The stubs of apsw name `collections.abc.Buffer`, which Python 3.11 does not have. Only this file meets them.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias, cast

import apsw

from retinue.errors import CorruptSession, StoreFailure

SQL: dict[str, str] = {}
"""Every statement of `statements.sql`, by its name."""

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]

# Not through importlib.resources: importing it takes longer than opening the database.
_text = Path(__file__).with_name("statements.sql").read_text(encoding="utf-8")
for _name, _body in re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", _text, re.MULTILINE | re.DOTALL):
    SQL[_name] = _body.strip()

_FIRST_SOUND = 3_051_003
"""SQLite before 3.51.3 can lose committed pages when two connections write or checkpoint. Source: decision 0003."""

_CACHE_PAGES = 2000


def connect(path: str, *, read_only: bool = False) -> apsw.Connection:
    """A connection with the project's settings; it waits up to 5 s for a lock.

    Raises: apsw errors, as SQLite gives them.
    """
    if apsw.SQLITE_VERSION_NUMBER < _FIRST_SOUND:
        raise StoreFailure(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a database that two processes use; "
            "install the version of apsw that Retinue asks for"
        )
    access = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if read_only and _is_fixed(path):
        address = f"{Path(path).absolute().as_uri()}?immutable=1"
        connection = apsw.Connection(address, flags=access | apsw.SQLITE_OPEN_URI)
    else:
        connection = apsw.Connection(path, flags=access)
    connection.set_busy_timeout(5000)
    run(connection, f"PRAGMA cache_size = {_CACHE_PAGES}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF")
    if not read_only:
        run(connection, "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0")
    return connection


def _is_fixed(path: str) -> bool:
    """Nothing can change the database and all of it is in its file: it is read without the files beside it, which could
    not be made there."""
    folder = os.path.dirname(path) or "."
    log = f"{path}-wal"
    return not os.access(folder, os.W_OK) and not (os.path.exists(log) and os.path.getsize(log))


def run(on: apsw.Connection | apsw.Cursor, sql: str, values: Row = ()) -> list[Row]:
    """What the statement answers, read to its end: an unfinished one would pin an old snapshot."""
    return cast("list[Row]", on.execute(sql, values).fetchall())


def run_many(on: apsw.Cursor, sql: str, rows: Iterable[Row]) -> None:
    """The statement ran once for each row of values."""
    on.executemany(sql, rows)


class Transaction:
    """A transaction around a block: committed at its end, rolled back if it raises."""

    __slots__ = ("_connection", "_kind")

    def __init__(self, connection: apsw.Connection, kind: Literal["DEFERRED", "IMMEDIATE"]) -> None:
        self._connection = connection
        self._kind = kind

    def __enter__(self) -> None:
        run(self._connection, "BEGIN " + self._kind)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                run(self._connection, "COMMIT")
        finally:
            if self._connection.in_transaction:
                run(self._connection, "ROLLBACK")


def failure(error: apsw.Error, path: str) -> StoreFailure:
    """What the error means for whoever uses the store: what failed, in which file, what to do."""
    match error:
        case apsw.FullError():
            what = "there is no room for it; free space on that disk, and try again"
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            what = "it cannot be written; check the owner and the mode of the file and its folder"
        case apsw.CantOpenError():
            what = "it cannot be opened; check that the file and its folder exist and may be read and written"
        case apsw.CorruptError() | apsw.NotADBError():
            what = "it is damaged; restore a copy, or save what `sqlite3 .recover` can read"
        case apsw.BusyError() | apsw.LockedError():
            what = "another process holds it locked; end or continue that process"
        case apsw.IOError():
            what = "the disk failed to read or write it; check the disk and the file system"
        case _:
            what = "SQLite refused"
    result = StoreFailure(f"the database {path!r} cannot be used: {what} ({_detail(error)})")
    result.__cause__ = error
    return result


def corrupt(session_id: str, error: apsw.Error) -> CorruptSession:
    """A session whose rows the database cannot read."""
    result = CorruptSession(
        f"session {session_id!r} cannot be read: the database is damaged there ({_detail(error)}); "
        "other sessions may be fine"
    )
    result.__cause__ = error
    return result


def _detail(error: apsw.Error) -> str:
    return f"{type(error).__name__}: {error}"
