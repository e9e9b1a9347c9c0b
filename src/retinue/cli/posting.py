"""Sending from the command line: the store alone is opened, and no lease is taken."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.options import Common

if TYPE_CHECKING:
    from retinue.compose.post import Posted
    from retinue.session.table import Sessions

__all__ = ["key_option", "posting", "reader"]

F = TypeVar("F", bound=Callable[..., Any])


def key_option(command: F) -> F:
    """The command takes `--key`."""
    text = "The same key again answers what the first came to and has no second effect."
    return click.option("--key", metavar="KEY", help=text)(command)


@asynccontextmanager
async def posting(common: Common) -> AsyncGenerator[Sessions]:
    """The sessions of the configured store. Raises: ConfigError, SessionNotFound if there is no store yet."""
    from retinue.base.clock import SystemClock
    from retinue.compose.dotenv import with_dotenv
    from retinue.compose.stores import open_store, store_path
    from retinue.errors import SessionNotFound
    from retinue.session.table import Sessions

    environ = with_dotenv(os.environ, common.folder)
    config = common.load(environ)
    if not store_path(config, environ).exists():
        raise SessionNotFound("no session is stored here: there is no database in this home yet")
    clock = SystemClock()
    store = open_store(config, environ, clock)
    try:
        yield Sessions(store, clock, config.store.durability)
    finally:
        await store.aclose()


def reader(posted: Posted, common: Common, otherwise: str) -> str:
    """Who does it, for people; or `otherwise`, with the command that does it."""
    if posted.driver is not None:
        return f"{posted.driver} drives it"
    return f"nobody drives it now: {otherwise} (retinue resume {posted.root}{common.place})"
