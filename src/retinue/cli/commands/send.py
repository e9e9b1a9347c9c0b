"""`retinue send`: a message to a stored session, whoever drives it."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import Common, common_options, shared
from retinue.cli.posting import key_option, posting, reader

__all__ = ["command"]


@click.command("send")
@click.argument("id")
@click.argument("text", nargs=-1, required=True)
@key_option
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, text: tuple[str, ...], key: str | None, **options: Any) -> int:
    """Send TEXT to the session ID (or a unique prefix) as its next turn. A single `-` reads it from stdin.

    The session may be a root or a child that takes messages, and may be driven by another process or by none. A message
    to a session that works waits for its turn. A child that had finished comes back for it.
    """
    import anyio

    from retinue.cli.headless.job import words

    click.echo(anyio.run(_sent, shared(ctx, options), id, words(text), key))
    return 0


async def _sent(common: Common, id: str, text: str, key: str | None) -> str:
    from retinue.compose.post import post_message

    async with posting(common) as sessions:
        posted = await post_message(sessions, id, text, key=key)
    what = f"{posted.message_id} to {posted.session_id}"
    if not posted.is_pending:
        return f"sent before: {what}; it was read or withdrawn already"
    return f"sent {what}; {reader(posted, common, 'it is read at the next resume')}"
