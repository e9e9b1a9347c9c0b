"""Where state lives and which store keeps it. Imports neither models nor plugins, so that looking costs little."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retinue.base.clock import Clock
from retinue.compose.config import Config, default_home
from retinue.errors import BadInput, ConfigError
from retinue.session.store import SessionStore

__all__ = ["back_up", "refuse_own_file", "home_of", "open_store", "store_path"]


def home_of(config: Config, environ: Mapping[str, str]) -> Path:
    """Absolute folder for state."""
    return Path(config.home).expanduser().absolute() if config.home else default_home(environ)


def store_path(config: Config, environ: Mapping[str, str]) -> Path:
    """The database file. Raises: ConfigError for a store that this version does not know."""
    url = config.store.url
    if url is None:
        return home_of(config, environ) / "retinue.db"
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///")).expanduser().absolute()
    raise ConfigError(f"store.url {url!r} is not supported; write sqlite:///PATH")


def back_up(config: Config, environ: Mapping[str, str], target: Path, *, replace: bool = False) -> None:
    """`target` is a compact copy of the configured database with all that was committed when this began. Blocks.

    Others may go on writing meanwhile. Raises: BadInput if there is such a file, unless it
    shall be `replace`d, or if it is the database itself; StoreFailure.
    """
    from retinue.store.sqlite import copy_database

    path = store_path(config, environ)
    refuse_own_file(path, target)
    copy_database(str(path), str(target), replace=replace)


def refuse_own_file(store: Path, target: Path) -> None:
    """Return if writing to `target` leaves the database alone. Raises: BadInput."""
    own = (store, *(store.with_name(store.name + end) for end in ("-wal", "-shm", "-journal")))
    if any(target.resolve() == file.resolve() for file in own):
        raise BadInput(f"{str(target)!r} is the database itself; choose another name")


def open_store(config: Config, environ: Mapping[str, str], clock: Clock, *, read_only: bool = False) -> SessionStore:
    """The configured store. Raises: StoreFailure, SchemaTooNew."""
    from retinue.store.sqlite import SqliteStore

    return SqliteStore.open(store_path(config, environ), clock, read_only=read_only)
