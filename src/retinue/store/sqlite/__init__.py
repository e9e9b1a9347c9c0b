"""The embedded store: one SQLite file per home, in WAL mode, with one writing connection per process."""

from retinue.store.sqlite._copy import copy_database
from retinue.store.sqlite._leases import LEASE_TERM_S
from retinue.store.sqlite._schema import is_unborn
from retinue.store.sqlite.store import SqliteStore

__all__ = ["LEASE_TERM_S", "SqliteStore", "copy_database", "is_unborn"]
