"""`retinue demo`: the main job without a key."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click

from retinue.cli.headless.job import headless_options, make_job
from retinue.cli.options import Common, common_options, shared

__all__ = ["command"]


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the sessions and the copy, to look at them afterwards.")
@click.option("--from", "source", metavar="DIR", help="Work on a copy of this folder instead of the bundled one.")
@common_options
@headless_options
@click.pass_context
def command(ctx: click.Context, keep: bool, source: str | None, **options: Any) -> int:
    """See delegation at work, without a key and without a network.

    A scripted model delegates questions about a small project to agents that work side by side. Only the model is
    scripted: the agents, their sessions, their tools and the files they read are real, and the answer is computed from
    what the tools return. Of the common options only --home counts here; what it names is kept.
    """
    common = shared(ctx, options)
    place = Path(mkdtemp(prefix="retinue-demo-"))
    home = Path(common.home).expanduser().absolute() if common.home is not None else place / "home"
    try:
        return _perform(common, options, source, home, place / "tree", keep)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _perform(common: Common, options: dict[str, Any], source: str | None, home: Path, tree: Path, keep: bool) -> int:
    from retinue.cli.demo.copying import copy_bundled, copy_folder
    from retinue.cli.demo.opening import open_demo
    from retinue.cli.demo.roles import TASK
    from retinue.cli.headless.progress import say
    from retinue.cli.headless.work import perform

    if source is None:
        copy_bundled(tree)
    else:
        copy_folder(Path(source), tree)
    job = make_job(Common(home=str(home)), options, task=TASK, is_resumable=False)
    say(f"The model is scripted; everything else is real. The task: {TASK}")

    def ended(id: str) -> None:
        if keep or common.home is not None:
            say(f"look at it with: retinue tree{job.common.place} {id}")
            say(f"            and: retinue log{job.common.place} {id}")
        else:
            say("nothing was kept; with --keep, `retinue tree` and `retinue log` show what happened")

    return perform(job, lambda _: open_demo(home, tree), ended)
