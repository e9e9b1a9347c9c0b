"""Groups of processes, by the number of their leader: whether they live, and ending them as a whole."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import anyio

from retinue.base.processes import processes

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
    known = processes()
    return not known or any(process.group == group and not process.is_dead for process in known)
