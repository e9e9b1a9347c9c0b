"""`retinue stop`: end a session and everything below it, whoever drives it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.options import Common, common_options, shared
from retinue.cli.posting import key_option, posting, reader

if TYPE_CHECKING:
    from retinue.compose.post import Posted

__all__ = ["command"]


@click.command("stop")
@click.argument("id")
@key_option
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, key: str | None, **options: Any) -> int:
    """End the turns of the session ID (or a unique prefix) and of everything below it, and drop what they were sent.

    Reports and notices that they have not read yet stay, and so do the sessions: both can be sent to and resumed.
    """
    import anyio

    click.echo(anyio.run(_stopped, shared(ctx, options), id, key))
    return 0


async def _stopped(common: Common, id: str, key: str | None) -> str:
    from retinue.base.ids import new_message_id
    from retinue.compose.post import post_order

    key = new_message_id() if key is None else key
    async with posting(common) as sessions:
        posted = await post_order(sessions, "stop", id, key=key)
    if not posted.is_pending:
        return f"stopped before: {posted.session_id}; nothing was done again"
    if posted.driver is None:
        posted = await _stopped_here(common, posted, key)
    if posted.driver is None:
        return f"stopped {posted.session_id} and everything below it"
    return f"stopping {posted.session_id} and everything below it; {reader(posted, common, '')}"


async def _stopped_here(common: Common, posted: Posted, key: str) -> Posted:
    """Nobody drives the tree, so it is done here: with the configured plugins, and without any model."""
    from retinue.compose import app
    from retinue.compose.dotenv import with_dotenv
    from retinue.model.adapters.unavailable import UnavailableClient

    folder = common.folder
    config = common.load(with_dotenv(os.environ, folder))
    async with app.open(config=config, cwd=folder, client=UnavailableClient()) as opened:
        return await opened.stop(posted.session_id, key=key)
