"""Groups of processes, by the number of their leader: whether they live, and ending them as a whole."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import anyio

__all__ = ["end_group", "exists", "lives", "wait_gone"]

_LINGERS_S = 0.16
"""How long a group may linger before it is looked at whether it is dead and merely uncollected."""


async def end_group(group: int, *, term_s: float, kill_s: float) -> None:
    """Nothing of the group lives, as far as that can be forced: SIGTERM, `term_s` later SIGKILL, `kill_s` to die."""
    for sign, patience_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, sign)
        with anyio.move_on_after(patience_s):
            await wait_gone(group)
            break


async def wait_gone(group: int) -> None:
    """Return once nothing of the group lives. Asked again and again: the system tells nobody of a group's end."""
    pause_s = 0.005
    # A group that lingers may be dead and uncollected; finding that out costs a look at every process.
    while exists(group) and (pause_s < _LINGERS_S or lives(group)):
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LINGERS_S)


def exists(group: int) -> bool:
    """True if the group has a process, dead ones that nobody collected included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def lives(group: int) -> bool:
    """True if a process of the group runs. One that is dead and not yet collected by its parent does not count."""
    if not exists(group):
        return False
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return True
    return any(_is_running_member(pid, group) for pid in pids)


def _is_running_member(pid: str, group: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, pgrp = file.read().rpartition(b")")[2].split()[:3]
    except OSError:
        return False
    return int(pgrp) == group and state not in (b"Z", b"X")
