"""`retinue resume`: go on with a stored root session, headless."""

from __future__ import annotations

import os
from typing import Any

import click

from retinue.cli.headless.hidden import hide_keys
from retinue.cli.headless.job import headless_options, make_job, words
from retinue.cli.options import common_options, shared

__all__ = ["command"]


@click.command("resume")
@click.argument("id")
@click.argument("text", nargs=-1)
@click.option("--key", metavar="KEY", help="Send TEXT once: the same key again answers what the first came to.")
@common_options
@headless_options
@click.pass_context
def command(ctx: click.Context, id: str, text: tuple[str, ...], key: str | None, **options: Any) -> int:
    """Go on with the stored root session ID (or a unique prefix), and with TEXT after that.

    A turn that a crash or a stop cut off is gone on with. Without TEXT, a session whose last turn was completed is left
    alone and its answer is printed again.
    """
    message = words(text)
    if text and not message:
        raise click.UsageError("the text is empty; leave it out to go on without one")
    if key is not None and not key.strip():
        raise click.UsageError("--key is empty; give the text a key of its own, or leave it out")
    if key is not None and not message:
        raise click.UsageError("--key makes sending a text repeatable; give the text as well")
    job = make_job(shared(ctx, options), options, session=id, task=message or None, key=key)
    hide_keys(os.environ)
    from retinue.cli.headless.work import perform

    return perform(job)
