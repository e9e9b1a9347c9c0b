"""`retinue run`: one task, headless."""

from __future__ import annotations

import os
from typing import Any

import click

from retinue.cli.headless.hidden import hide_keys
from retinue.cli.headless.job import headless_options, make_job, words
from retinue.cli.options import common_options, shared

__all__ = ["command"]


@click.command("run")
@click.argument("task", nargs=-1)
@common_options
@headless_options
@click.pass_context
def command(ctx: click.Context, task: tuple[str, ...], **options: Any) -> int:
    """Work on TASK, wait for whatever it started, and print the answer.

    TASK is taken from all words, or from stdin if it is a single `-`. Progress goes to stderr. The exit code is 0 if
    the task was completed, 1 if it failed or was cut off, 2 for usage and configuration, 3 if children or tasks were
    left behind, 130 or 143 if it was interrupted.
    """
    text = words(task)
    if not text:
        raise click.UsageError("say what to do: retinue run TASK")
    job = make_job(shared(ctx, options), options, task=text)
    hide_keys(os.environ)
    from retinue.cli.headless.work import perform

    return perform(job)
