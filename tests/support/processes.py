"""What runs on this machine, in whichever namespace: a process id that a confined command writes down is its own."""

from pathlib import Path

__all__ = ["runs"]


def runs(words: str) -> bool:
    """A process with that in its command line runs. One that has ended and waits to be collected has none."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.encode() in line.read_bytes():
                return True
        except OSError:
            continue
    return False
