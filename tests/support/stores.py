"""The two stores, as places that can be opened again after the process that used them has ended."""

from collections.abc import Callable
from pathlib import Path

from retinue.base.clock import Clock
from retinue.session.store import SessionStore
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.store.sqlite import SqliteStore

__all__ = ["KINDS", "OpenStore", "store_opener"]

OpenStore = Callable[[Clock], SessionStore]
"""Opens the same store again each time."""

KINDS = ("memory", "sqlite")


def store_opener(kind: str, folder: Path) -> OpenStore:
    if kind == "memory":
        home = MemoryHome()
        return lambda clock: MemoryStore(clock, home)
    return lambda clock: SqliteStore.open(folder / "home.db", clock)
