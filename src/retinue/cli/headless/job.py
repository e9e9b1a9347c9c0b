"""What `run` and `resume` were asked to do, and the options with which they are asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import click

from retinue.cli.options import Common

__all__ = ["Job", "can_ask", "headless_options", "make_job", "words"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One headless piece of work: a task for a new root, or a stored root to go on with."""

    common: Common
    task: str | None = None
    """For a new session, or the next message of `session`."""
    session: str | None = None
    """Id or unique prefix of a stored root."""
    key: str | None = None
    """Makes sending `task` to `session` repeatable."""
    output: Literal["text", "json", "jsonl"] = "text"
    stream: bool = False
    timeout_s: float | None = None
    max_tokens: int | None = None
    on_finish: Literal["drain", "stop"] = "drain"
    drain_timeout_s: float | None = 600.0
    """None = no bound."""
    ask: Literal["terminal", "reject", "allow"] | None = None
    """Who answers for calls that need an approval; None: a terminal if there is one, else as configured."""
    is_resumable: bool = True
    """The same command line finds the session again, so that people are told how to go on."""


class _Seconds(click.FloatRange):
    """A range that has no place for `nan`, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


_OPTIONS = (
    click.option(
        "--output",
        type=click.Choice(["text", "json", "jsonl"]),
        default="text",
        show_default=True,
        help="The answer alone, one result object, or one object a line as things happen.",
    ),
    click.option("--stream", is_flag=True, help="With jsonl: also live text, as `chunk` objects."),
    click.option(
        "--timeout",
        "timeout_s",
        metavar="S",
        type=_Seconds(min=0, min_open=True),
        help="Seconds after which the whole tree is stopped.",
    ),
    click.option(
        "--max-tokens",
        metavar="N",
        type=click.IntRange(min=1),
        help="Input and output tokens after which the whole tree makes no more requests.",
    ),
    click.option(
        "--on-finish",
        type=click.Choice(["drain", "stop"]),
        default="drain",
        show_default=True,
        help="When the root is done but others work: wait for them, or stop them.",
    ),
    click.option(
        "--drain-timeout",
        "drain_timeout_s",
        metavar="S",
        type=_Seconds(min=0),
        default=600.0,
        show_default=True,
        help="Bound on that wait; 0 = none.",
    ),
    click.option(
        "--ask",
        type=click.Choice(["terminal", "reject", "allow"]),
        help="Who answers for calls that need an approval: you at this terminal, or nobody, and they are rejected or "
        "allowed. Default: the terminal if there is one, else as configured (reject).",
    ),
)


def headless_options(command: F) -> F:
    """The command takes the options of headless work; `make_job` makes a job of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def make_job(common: Common, options: dict[str, Any], **more: Any) -> Job:
    """The job that the options describe. Raises: click.UsageError for options that do not go together."""
    if options["stream"] and options["output"] != "jsonl":
        raise click.UsageError("--stream writes objects, so it needs --output jsonl")
    if options["ask"] == "terminal" and not can_ask():
        raise click.UsageError("--ask terminal needs a terminal on stdin and stderr")
    drain_timeout_s = options.pop("drain_timeout_s") or None
    return Job(common=common, drain_timeout_s=drain_timeout_s, **options, **more)


def can_ask() -> bool:
    """Somebody sits at a terminal that this process may read from."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def words(parts: Sequence[str]) -> str:
    """The words of a task as one text; a single `-` reads it from stdin. Undecodable bytes become U+FFFD."""
    if list(parts) == ["-"]:
        return sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    text = " ".join(parts)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
