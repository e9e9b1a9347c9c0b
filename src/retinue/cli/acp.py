"""The process of `retinue acp`, from its start to its exit code.

A client that goes ends what it has begun, in order. A signal closes nothing: what runs is cut off and goes on when the
session is loaded again. Source: decisions 0011 and 0015.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio

from retinue.acp.server import Server
from retinue.acp.source import Lazy, Route
from retinue.base.standard import StandardStreams
from retinue.cli.options import Common
from retinue.cli.signalled import until_signalled
from retinue.compose.dotenv import with_dotenv

if TYPE_CHECKING:
    from retinue.compose.app import App
    from retinue.session.store import SessionStore

__all__ = ["GRACE_S", "serve"]

GRACE_S = 8.0
"""How long tools may take to let go after a signal; the process ends then, and the rest goes on after a load."""


def serve(common: Common) -> int:
    """The client has gone, or a signal came; the answer is the exit code. Raises: ConfigError for a bad folder."""
    folder = common.folder

    def examine() -> Route:
        from retinue.model.adapters.providers import resolve_model

        environ = with_dotenv(os.environ, folder)
        config = common.load(environ)
        provider = resolve_model(config.model, environ, base_url=config.base_url).provider
        return Route(images=provider.wire == "anthropic" or provider.quirks.images)

    def opener() -> AbstractAsyncContextManager[App]:
        from msgspec.structs import replace

        from retinue.compose import app

        config = common.load(with_dotenv(os.environ, folder))
        # Clients bring servers of tools of their own. Those in the folder are used by whoever configures that.
        plugins = {"mcp": {"file": None}, **config.plugins}
        return app.open(config=replace(config, plugins=plugins), cwd=folder)

    def reader() -> AbstractAsyncContextManager[SessionStore | None]:
        from retinue.cli.views.reading import reading

        return reading(common)

    try:
        return anyio.run(_serve, Lazy(folder, examine, opener, reader))
    except KeyboardInterrupt:  # before signals were ours
        return 130


async def _serve(source: Lazy) -> int:
    async with until_signalled(GRACE_S) as ending, anyio.create_task_group() as group:
        group.start_soon(source.keep)
        with ending.scope:
            await Server(StandardStreams(), source).serve()
        source.close()
    return ending.exit_code
