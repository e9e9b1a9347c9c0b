"""The entry of the command line: what must be quick, and the one place where errors become exit codes.

Asking for the version imports nothing but this module; everything else is imported by the command that runs.
"""

from __future__ import annotations

import sys
from types import FrameType

from retinue import __version__

__all__ = ["entry"]


def entry() -> int:
    """Run the command that `sys.argv` names; the answer is the exit code."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("--version", "-V"):
        print(f"retinue {__version__}")
        return 0
    _end_on_sigterm()
    try:
        from retinue.cli.group import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return 130


def _end_on_sigterm() -> None:
    """Until a command has its own way to end, SIGTERM ends the process with the code that shells use for it."""
    import signal

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, end)
