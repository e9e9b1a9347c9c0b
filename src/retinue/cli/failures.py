"""What failures look like on a terminal, and which exit code they have."""

from __future__ import annotations

import sys
from contextlib import suppress

from retinue.cli.text import one_line
from retinue.errors import (
    AlreadyExists,
    BadInput,
    IdConflict,
    ModelNotConfigured,
    NotFound,
    RetinueError,
    error_record,
)

__all__ = ["described", "exit_code", "report", "say", "say_unwritten"]

_USAGE = (BadInput, NotFound, AlreadyExists, IdConflict)
_HOW = "; set --model or RETINUE_MODEL, and the key of its provider, such as DEEPSEEK_API_KEY"
_DEMO = "; to see delegation at work without a key: retinue demo"


def exit_code(error: Exception) -> int:
    """2 for what the caller can fix on the command line or in the configuration, 1 for everything else."""
    return 2 if isinstance(error, _USAGE) else 1


def described(error: Exception) -> tuple[str, str]:
    """The (code, message) that people read."""
    code, message = error_record(error)
    if isinstance(error, ModelNotConfigured):
        message += _DEMO if "needs a key" in message else _HOW + _DEMO
    return code, message


def say(code: str, message: str) -> None:
    """One line on stderr: `retinue: CODE: message`. A stderr that is gone is no reason to fail."""
    with suppress(OSError):
        print(f"retinue: {code}: {one_line(message)}", file=sys.stderr)


def say_unwritten(error: OSError) -> None:
    """Why stdout did not take what was written there."""
    if isinstance(error, BrokenPipeError):
        say("OUTPUT_CLOSED", "nobody reads the output any more")
    else:
        say("OUTPUT_FAILED", f"the output cannot be written: {error.strerror}")


def report(error: RetinueError) -> int:
    """The error is on stderr; the answer is the exit code."""
    say(*described(error))
    return exit_code(error)
