"""The entry of the command line: what must be quick, and the one place where errors become exit codes.

Asking for the version imports nothing but this module; everything else is imported by the command that runs.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType

from retinue import __version__

__all__ = ["closed", "entry"]

closed: set[str] = set()
"""Which of `stdout` and `stderr` the caller closed: nothing that is written there arrives."""


def entry() -> int:
    """Run the command that `sys.argv` names; the answer is the exit code."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in ("--version", "-V"):
        print(f"retinue {__version__}")
        return 0
    _end_on_signals()
    _open_streams()
    # Imports make no garbage and records hold no cycles, so looking for cycles as often as Python does, and once more
    # at exit, is 4 % of a short run and finds nothing.
    gc.set_threshold(10_000, 20, 20)
    try:
        from retinue.cli.group import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        gc.freeze()


def _open_streams() -> None:
    """Output that the caller closed goes nowhere, instead of into whatever is opened next or into the other stream."""
    import os

    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            closed.add(name)
            fd = os.open(os.devnull, os.O_WRONLY)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def _end_on_signals() -> None:
    """Until a command has its own way to end, these signals end the process with the code that shells use for them."""
    import signal

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end)
