"""`retinue export`: one tree of sessions as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("export")
@click.argument("id")
@click.argument("file")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, file: str, force: bool, **options: Any) -> int:
    """Write the tree of the root session ID (or a unique prefix) to FILE, as it was at one moment.

    Works beside a live process and changes nothing. FILE has every log and mailbox of the tree, and no key: logs hold
    none. Texts that tools left in files of the home are not in it. `retinue import` takes it into another home.
    """
    import anyio

    click.echo(anyio.run(_export, shared(ctx, options), id, Path(file).absolute(), force))
    return 0


async def _export(common: Common, id: str, file: Path, force: bool) -> str:
    from retinue.cli.home import located
    from retinue.cli.views.reading import found, reading
    from retinue.compose.keeping import export_tree, find_tree
    from retinue.compose.stores import refuse_own_file

    refuse_own_file(located(common)[2], file)
    async with reading(common) as maybe:
        store, known = await found(maybe, id)
        tree = await find_tree(store, known)
        count = await export_tree(store, tree.root, file, replace=force)
    return f"{file}  {count} {'session' if count == 1 else 'sessions'}"
