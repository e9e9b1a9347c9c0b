"""`retinue acp`: an agent for editors and other programs that speak the Agent Client Protocol."""

from __future__ import annotations

import os
from typing import Any

import click

from retinue.cli.headless.hidden import hide_keys
from retinue.cli.options import common_options, shared

__all__ = ["command"]


@click.command("acp")
@common_options
@click.pass_context
def command(ctx: click.Context, **options: Any) -> int:
    """Speak the Agent Client Protocol (version 1) on stdin and stdout, until the client goes.

    Sessions work in the folder that the client names. The configuration is that of --cwd.
    """
    hide_keys(os.environ)
    from retinue.cli.acp import serve

    return serve(shared(ctx, options))
