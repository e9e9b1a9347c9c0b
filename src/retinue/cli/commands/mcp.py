"""`retinue mcp`: delegation for another agent, over the Model Context Protocol."""

from __future__ import annotations

import os
from typing import Any

import click

from retinue.cli.headless.hidden import hide_keys
from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]

_GRACE_S = 8.0


@click.command("mcp")
@common_options
@click.pass_context
def command(ctx: click.Context, **options: Any) -> int:
    """Serve delegation to one MCP host over stdin and stdout, for the working folder and what is in it.

    The host starts agents, sends to them, waits for them and reads what became of them. They are kept in the home: a
    host that starts this command again in the same folder finds all of them, and what had not ended goes on.
    """
    import anyio

    hide_keys(os.environ)
    return anyio.run(_served, shared(ctx, options))


async def _served(common: Common) -> int:
    from retinue.cli.signalled import until_signalled
    from retinue.compose import app as compose
    from retinue.compose.dotenv import with_dotenv
    from retinue.errors import ConfigError

    try:
        from retinue.mcp.server import serve
    except ImportError as error:
        raise ConfigError(
            "retinue mcp needs the official SDK; in the folder of Retinue: pip install -e '.[mcp]'"
        ) from error
    folder = common.folder
    config = common.load(with_dotenv(os.environ, folder))
    async with until_signalled(_GRACE_S) as ending:
        with ending.scope:
            async with compose.open(config=config, cwd=folder) as app:
                await serve(app)
    return ending.exit_code
