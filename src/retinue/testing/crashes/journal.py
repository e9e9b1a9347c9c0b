"""What the processes of one plan did, written down as they do it: a line survives the process that wrote it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from retinue.testing.crashes.points import KillPoint

__all__ = ["Journal", "Moment", "read_journal"]


class Moment(Struct, frozen=True, kw_only=True):
    """A kill point that a process came to."""

    life: int
    """Which process, from 1."""
    point: KillPoint
    session_id: str = ""
    call: str = ""
    """Which call of the session, for ever."""
    arguments: str = ""
    effect: str = ""
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the call has made or named."""


class Journal:
    """Appends to the one journal of a plan."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def write(self, moment: Moment) -> None:
        """The moment outlives the process."""
        os.write(self._fd, msgspec.json.encode(moment) + b"\n")


def read_journal(path: Path) -> list[Moment]:
    """All moments, in order."""
    return [msgspec.json.decode(line, type=Moment) for line in path.read_bytes().splitlines()]
