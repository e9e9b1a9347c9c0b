"""`retinue sessions`: the stored root sessions, newest first."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("sessions")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@common_options
@click.pass_context
def command(ctx: click.Context, as_json: bool, **options: Any) -> int:
    """List the stored root sessions, newest first. Works beside a live process and changes nothing."""
    import anyio

    for line in anyio.run(_lines, shared(ctx, options), as_json):
        click.echo(line)
    return 0


async def _lines(common: Common, as_json: bool) -> list[str]:
    from retinue.base.json import encode
    from retinue.cli.failures import say
    from retinue.cli.text import brief
    from retinue.cli.views.reading import is_owed, reading
    from retinue.cli.views.state import clock_time, session_object, state
    from retinue.errors import CorruptSession
    from retinue.session.title import title

    lines: list[str] = []
    async with reading(common) as store:
        if store is None:
            return [] if as_json else ["no sessions"]
        for summary in await store.roots():
            try:
                stored = await store.read(summary.header.id)
                owed = await is_owed(store, summary)
            except CorruptSession as error:  # one that cannot be read hides no other
                say(error.code, str(error))
                continue
            if as_json:
                lines.append(encode(session_object(summary, stored, is_owed=owed)).decode())
            else:
                when = clock_time(summary.last_event_at)
                how = state(summary, stored, is_owed=owed)
                lines.append(f"{summary.header.id}  {when}  {how:<11}  {brief(title(stored), 60)}")
    return lines or ([] if as_json else ["no sessions"])
