"""The processes of this system, as `/proc` tells of them. Where there is no `/proc`, nothing is known of any."""

from __future__ import annotations

import os

from msgspec import Struct

__all__ = ["Process", "processes", "start_time"]


class Process(Struct, frozen=True, kw_only=True):
    """One process at one moment."""

    pid: int
    started: int
    """In ticks since boot: a number is given again, the two together are not."""
    parent: int
    group: int
    session: int
    is_dead: bool
    """It has ended, and its parent has not collected it yet."""


def processes() -> list[Process]:
    """All of them, this one included; none where nothing is known."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [found for found in map(_process, pids) if found is not None]


def start_time(pid: int) -> int | None:
    """When the process of that number began, in ticks since boot; None if it is dead, or if nothing is known of it."""
    found = _process(pid)
    return None if found is None or found.is_dead else found.started


def _process(pid: int) -> Process | None:
    """Source: proc(5), `/proc/pid/stat`; the name, which is in brackets, may have spaces and brackets of its own."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(
        pid=pid,
        started=int(fields[19]),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        is_dead=fields[0] in (b"Z", b"X"),
    )
