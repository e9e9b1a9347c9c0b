"""The home that a command line means, opened for changes to what is stored. Drives nothing and asks no model."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from retinue.base.clock import Clock, SystemClock
from retinue.cli.options import Common
from retinue.compose.config import Config
from retinue.compose.dotenv import with_dotenv
from retinue.compose.stores import home_of, open_store, store_path
from retinue.errors import StoreFailure
from retinue.session.store import SessionStore

__all__ = ["Home", "located", "opened"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A home that is open for writing."""

    store: SessionStore
    folder: Path
    clock: Clock


def located(common: Common) -> tuple[Config, dict[str, str], Path]:
    """The configuration, the environment that goes with it, and the database file. Raises: ConfigError."""
    environ = dict(with_dotenv(os.environ, common.folder))
    config = common.load(environ)
    return config, environ, store_path(config, environ)


@asynccontextmanager
async def opened(common: Common, *, create: bool = False) -> AsyncGenerator[Home]:
    """The configured home. Raises: ConfigError; StoreFailure, also for one that is not there, unless `create`."""
    config, environ, path = located(common)
    if not create and not path.exists():
        raise StoreFailure(f"there is no database at {str(path)!r}; check the path, or run an agent there first")
    clock = SystemClock()
    store = open_store(config, environ, clock)
    try:
        yield Home(store=store, folder=home_of(config, environ), clock=clock)
    finally:
        await store.aclose()
