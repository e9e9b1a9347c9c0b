"""`retinue backup`: a copy of the whole database while it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from retinue.cli.options import common_options, shared

__all__ = ["command"]


@click.command("backup")
@click.argument("file")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@common_options
@click.pass_context
def command(ctx: click.Context, file: str, force: bool, **options: Any) -> int:
    """Copy the whole database to FILE: every session as it was at one moment.

    Agents may go on working meanwhile. FILE appears only when the copy is whole and on disk. To use it, put it where
    the database was, or name it with --store sqlite:///FILE.
    """
    from retinue.cli.home import located
    from retinue.compose.stores import back_up
    from retinue.errors import StoreFailure

    config, environ, path = located(shared(ctx, options))
    if not path.exists():
        raise StoreFailure(f"there is no database at {str(path)!r}; check the path, or run an agent there first")
    target = Path(file).absolute()
    back_up(config, environ, target, replace=force)
    click.echo(f"{target}  {target.stat().st_size} bytes")
    return 0
