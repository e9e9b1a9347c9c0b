"""`retinue scenario`: runs, records and refreshes scenarios."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from retinue.testing.scenario.suite import Refreshed

__all__ = ["command"]

_DIR = click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))


@click.group("scenario")
def command() -> None:
    """Scenarios: folders that pin what an agent configuration makes of given steps and given replies of a model.

    DIR is the folder of one scenario, or one with several below it. Tools that a scenario names as `module:name` are
    found from the current folder.
    """
    sys.path.insert(0, os.getcwd())


@command.command("run")
@_DIR
def run_command(folder: Path) -> int:
    """Perform the scenarios of DIR and tell what differs from what they expect. The exit code is 1 if anything does."""
    import anyio

    from retinue.testing.scenario.folder import find_folders
    from retinue.testing.scenario.suite import run

    failed = 0
    for path in find_folders(folder):
        problems = anyio.run(run, path)
        failed += bool(problems)
        _tell(path, "FAIL" if problems else "ok", problems)
    return 1 if failed else 0


@command.command("refresh")
@_DIR
def refresh_command(folder: Path) -> int:
    """Write what the scenarios of DIR expect anew. One that breaks a rule stays as it is, and the exit code is 1."""
    from retinue.testing.scenario.suite import refresh

    return _rewrite(folder, refresh)


@command.command("record")
@click.option("--model", metavar="PROVIDER:NAME", help="Whom to ask; default: the model of the scenario.")
@click.option("--base-url", metavar="URL", help="Address of an OpenAI-compatible server.")
@_DIR
def record_command(folder: Path, model: str | None, base_url: str | None) -> int:
    """Let a real model answer the scenarios of DIR, and keep what it says as their scripts and expected files."""
    from retinue.compose.dotenv import with_dotenv
    from retinue.testing.scenario.recording import record

    environ = with_dotenv(os.environ, Path.cwd())
    return _rewrite(folder, lambda path: record(path, environ=environ, model=model, base_url=base_url))


def _rewrite(folder: Path, work: Callable[[Path], Awaitable[Refreshed]]) -> int:
    import anyio

    from retinue.testing.scenario.folder import find_folders

    failed = 0
    for path in find_folders(folder):

        async def one(path: Path = path) -> Refreshed:
            return await work(path)

        done = anyio.run(one)
        failed += bool(done.problems)
        state = "FAIL" if done.problems else "changed" if done.changed else "same"
        _tell(path, state, done.problems or done.changed)
    return 1 if failed else 0


def _tell(path: Path, state: str, lines: Sequence[str]) -> None:
    click.echo(f"{state:8}{path.resolve().name}")
    for line in lines:
        click.echo(f"        {line}")
