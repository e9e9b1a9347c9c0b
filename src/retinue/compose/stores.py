"""Where state lives and which store keeps it. Imports neither models nor plugins, so that looking costs little."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retinue.base.clock import Clock
from retinue.compose.config import Config, default_home
from retinue.errors import ConfigError
from retinue.session.store import SessionStore

__all__ = ["home_of", "open_store", "store_path"]


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


def open_store(config: Config, environ: Mapping[str, str], clock: Clock, *, read_only: bool = False) -> SessionStore:
    """The configured store. Raises: StoreFailure, SchemaTooNew."""
    from retinue.store.sqlite import SqliteStore

    return SqliteStore.open(store_path(config, environ), clock, read_only=read_only)
