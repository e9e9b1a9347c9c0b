"""`retinue interrupt`: end the open turn of a session, whoever drives it."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import Common, common_options, shared
from retinue.cli.posting import key_option, posting, reader

__all__ = ["command"]


@click.command("interrupt")
@click.argument("id")
@key_option
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, key: str | None, **options: Any) -> int:
    """End the turn that is open in the session ID (or a unique prefix).

    Its queued messages stay and are gone on with by the next message to it. Children that it started go on.
    """
    import anyio

    click.echo(anyio.run(_asked, shared(ctx, options), id, key))
    return 0


async def _asked(common: Common, id: str, key: str | None) -> str:
    from retinue.compose.post import post_order

    async with posting(common) as sessions:
        posted = await post_order(sessions, "interrupt", id, key=key)
    if not posted.is_pending:
        return f"interrupted before: {posted.session_id}; nothing was done again"
    if not posted.has_open_turn:
        return f"no turn was open in {posted.session_id}; there is nothing to interrupt"
    return f"interrupting {posted.session_id}; {reader(posted, common, 'its turn ends at the next resume')}"
