"""The embedded store: one SQLite file per home, in WAL mode, with one writing connection per process."""

from retinue.store.sqlite._copy import copy_database
from retinue.store.sqlite._inspect import InspectedSession, InspectedTree, Inspector
from retinue.store.sqlite._leases import LEASE_TERM_S
from retinue.store.sqlite._owners import owner_leftovers
from retinue.store.sqlite._schema import is_unborn
from retinue.store.sqlite.store import SqliteStore

__all__ = [
    "LEASE_TERM_S",
    "InspectedSession",
    "InspectedTree",
    "Inspector",
    "SqliteStore",
    "copy_database",
    "is_unborn",
    "owner_leftovers",
]
