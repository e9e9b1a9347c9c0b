"""`retinue usage`: what the agents of a tree have used."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("usage")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, as_json: bool, **options: Any) -> int:
    """Show what the session ID (or a unique prefix) and its descendants have used, each for itself and together.

    From the logs alone, so beside a live process it is what was answered until now.
    """
    import anyio

    for line in anyio.run(_lines, shared(ctx, options), id, as_json):
        click.echo(line)
    return 0


async def _lines(common: Common, id: str, as_json: bool) -> list[str]:
    from retinue.base.json import encode
    from retinue.cli.views.reading import found, reading
    from retinue.cli.views.usage import agent_usages, usage_report, usage_table

    async with reading(common) as maybe:
        store, top = await found(maybe, id)
        agents = [agent async for agent in agent_usages(store, top)]
    return [encode(usage_report(agents)).decode()] if as_json else usage_table(agents)
