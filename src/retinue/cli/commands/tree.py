"""`retinue tree`: a stored session and its descendants."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("tree")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, as_json: bool, **options: Any) -> int:
    """Show the session ID (or a unique prefix) and its descendants: how each stands and what it has used.

    Works beside a live process and changes nothing.
    """
    import anyio

    for line in anyio.run(_lines, shared(ctx, options), id, as_json):
        click.echo(line)
    return 0


async def _lines(common: Common, id: str, as_json: bool) -> list[str]:
    from retinue.base.json import encode
    from retinue.cli.views.reading import found, reading, stored_tree
    from retinue.cli.views.state import session_object
    from retinue.cli.views.tree import tree_line

    async with reading(common) as maybe:
        store, top = await found(maybe, id)
        nodes = await stored_tree(store, top)
    if as_json:
        return [encode(session_object(node.summary, node.stored, is_owed=node.is_owed)).decode() for node in nodes]
    return [tree_line(node) for node in nodes]
