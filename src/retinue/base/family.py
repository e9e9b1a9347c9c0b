"""A group of processes with all that it has started outside of itself, such as a command in a session of its own.

Who started whom is only known while the one who started lives, so it is looked up before anything is ended. Where the
system has no `/proc`, a family is its group.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress

import anyio

from retinue.base.groups import lives, wait_gone
from retinue.base.processes import Process, processes, start_time

__all__ = ["Family"]

_LONGEST_PAUSE_S = 0.16
"""Between two looks at whether those outside of the group are gone."""


class Family:
    """The group of that leader and its descendants."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._outside: dict[int, int] = {}
        """When each of those began who are outside of the group, by their numbers."""

    def look(self) -> None:
        """Whom the family has now is known from now on, whatever becomes of those who started them."""
        children: defaultdict[int, list[Process]] = defaultdict(list)
        todo: list[Process] = []
        for found in processes():
            children[found.parent].append(found)
            if found.group == self._group or self._outside.get(found.pid) == found.started:
                todo.append(found)
        seen: set[int] = set()
        while todo:
            found = todo.pop()
            if found.pid not in seen:
                seen.add(found.pid)
                todo += children[found.pid]
                if found.group != self._group:
                    self._outside[found.pid] = found.started

    @property
    def is_alive(self) -> bool:
        """A process of it that is known runs."""
        return lives(self._group) or self._is_outside_alive

    async def wait_gone(self) -> None:
        """Return once nothing of it that is known runs."""
        await wait_gone(self._group)
        pause_s = 0.005
        while self._is_outside_alive:
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def end(self, *, term_s: float, kill_s: float) -> None:
        """Nothing of it runs, as far as that can be forced: SIGTERM, `term_s` later SIGKILL, `kill_s` to die."""
        for sign, patience_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
            self.look()
            self._signal(sign)
            with anyio.move_on_after(patience_s):
                await self.wait_gone()
                break

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, sign)
        for pid, started in self._outside.items():
            if start_time(pid) == started:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sign)

    @property
    def _is_outside_alive(self) -> bool:
        return any(start_time(pid) == started for pid, started in self._outside.items())
