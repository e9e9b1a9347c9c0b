"""`retinue import`: an exported tree becomes part of a home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("import")
@click.argument("file")
@common_options
@click.pass_context
def command(ctx: click.Context, file: str, **options: Any) -> int:
    """Store the tree that `retinue export` wrote to FILE, under its own ids.

    It is checked first and stored whole or not at all; nothing is stored if one of its sessions is there already. What
    it owes goes on with `retinue resume`.
    """
    import anyio

    click.echo(anyio.run(_import, shared(ctx, options), Path(file)))
    return 0


async def _import(common: Common, file: Path) -> str:
    from retinue.cli.home import opened
    from retinue.compose.keeping import import_tree
    from retinue.errors import BadInput

    try:
        lines = file.open("rb")
    except OSError as error:
        raise BadInput(f"the export {str(file)!r} cannot be read: {error.strerror}; check the path") from error
    with lines:
        async with opened(common, create=True) as home:
            tree = await import_tree(home.store, home.clock, lines)
    owed = f"; it owes work: retinue resume{common.place} {tree.root}" if tree.owes_work else ""
    return f"{tree.root}  {tree.sessions} {'session' if tree.sessions == 1 else 'sessions'}{owed}"
