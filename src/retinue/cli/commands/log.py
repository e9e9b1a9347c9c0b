"""`retinue log`: the turns and steps of one stored session."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("log")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="The events as they are stored, one object a line.")
@click.option("--full", is_flag=True, help="Long texts in full.")
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, as_json: bool, full: bool, **options: Any) -> int:
    """Show the log of the session ID (or a unique prefix): its turns, their steps, calls and results.

    Works beside a live process and on what a crash left behind, and changes nothing.
    """
    import anyio

    for line in anyio.run(_lines, shared(ctx, options), id, as_json, full):
        click.echo(line)
    return 0


async def _lines(common: Common, id: str, as_json: bool, full: bool) -> list[str]:
    from retinue.base.json import encode
    from retinue.cli.views.log import log_lines
    from retinue.cli.views.reading import found, is_owed, reading
    from retinue.errors import SessionNotFound
    from retinue.session.events import event_object

    async with reading(common) as maybe:
        store, known = await found(maybe, id)
        stored = await store.read(known)
        summary = await store.summary(known)
        owed = summary is not None and await is_owed(store, summary)
    if summary is None:
        raise SessionNotFound(f"session {known!r} was removed just now")
    if as_json:
        return [encode(event_object(event)).decode() for event in stored.events]
    return list(log_lines(summary, stored, full=full, is_owed=owed))
