"""`retinue prune`: whole trees are removed, after a look at which."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.options import Common, common_options, shared

if TYPE_CHECKING:
    from retinue.cli.home import Home
    from retinue.compose.keeping import StoredTree

__all__ = ["command"]


@click.command("prune")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--older-than", "days", type=click.FloatRange(min=0), metavar="DAYS", help="Trees at rest for so long.")
@click.option("--force", is_flag=True, help="With --older-than: also trees that still owe work.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    ids: tuple[str, ...],
    days: float | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> int:
    """Remove the trees of the root sessions ID... (or unique prefixes), or all that are older than DAYS.

    A tree is a root and all its descendants, with their logs, messages and files. It is listed first, with what it
    still owes. A tree that a living process drives is never removed. One that owes work is removed if its ID is given,
    and left alone by --older-than, unless --force.
    """
    import anyio

    if bool(ids) == (days is not None):
        raise click.UsageError("say which trees: either ids, or --older-than DAYS")
    return anyio.run(_prune, shared(ctx, options), ids, days, force, dry_run, yes)


async def _prune(common: Common, ids: Sequence[str], days: float | None, force: bool, dry_run: bool, yes: bool) -> int:
    from retinue.cli.home import opened

    async with opened(common) as home:
        if days is None:
            trees, rest = await _named(home, ids), []
        else:
            trees, rest = await _aged(home, days, force)
        for tree in trees:
            click.echo(_line(tree))
        if rest:
            click.echo(f"{len(rest)} more owe work and stay; --force removes them too", err=True)
        if not trees and not rest:
            click.echo("no tree is that old", err=True)
        if dry_run or not trees:
            return 0
        if not yes and not _agreed(len(trees)):
            return 2
        return await _remove(home, trees, force=force or days is None)


async def _named(home: Home, ids: Sequence[str]) -> list[StoredTree]:
    from retinue.compose.keeping import find_tree

    return list({tree.root: tree for tree in [await find_tree(home.store, id) for id in ids]}.values())


async def _aged(home: Home, days: float, force: bool) -> tuple[list[StoredTree], list[StoredTree]]:
    """The trees without an event for so many days: those to remove, and those that stay because they owe work."""
    from retinue.compose.keeping import stored_trees

    latest = home.clock.now_ms() - days * 86_400_000
    old = [tree for tree in await stored_trees(home.store) if tree.last_event_at <= latest]
    return [t for t in old if force or not t.owes_work], [t for t in old if t.owes_work and not force]


def _agreed(count: int) -> bool:
    what = "this tree" if count == 1 else f"these {count} trees"
    if sys.stdin.isatty():
        return click.confirm(f"Remove {what} for good?", err=True)
    click.echo(f"nothing was removed; say --yes to remove {what}", err=True)
    return False


async def _remove(home: Home, trees: Sequence[StoredTree], *, force: bool) -> int:
    """The exit code: 1 if one of the trees could not be removed."""
    from retinue.cli.failures import report
    from retinue.compose.keeping import prune_tree
    from retinue.errors import RetinueError

    failed = False
    removed = 0
    for tree in trees:
        try:
            await prune_tree(home.store, tree.root, home.folder, force=force)
            removed += 1
        except RetinueError as error:  # one that is at work keeps no other
            report(error)
            failed = True
    click.echo(f"removed {removed} {'tree' if removed == 1 else 'trees'}", err=True)
    return 1 if failed else 0


def _line(tree: StoredTree) -> str:
    from retinue.cli.views.state import clock_time

    counted = f"{tree.sessions:>4} {'session ' if tree.sessions == 1 else 'sessions'} {tree.events:>6} events"
    return f"{tree.root}  {clock_time(tree.last_event_at)}  {counted}{'  owes work' if tree.owes_work else ''}"
