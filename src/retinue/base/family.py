"""A group of processes with all that it has started outside of itself, such as a command in a session of its own.

Who started whom is only known while the one who started lives, so it is looked up before anything is ended. Where the
system has no `/proc`, a family is its group.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

import anyio

from retinue.base.groups import exists, lives, wait_gone

__all__ = ["Family"]

_LINGERS_S = 0.16


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    started: int
    """In ticks since boot: a number is given again, the two together are not."""


@dataclass(frozen=True, slots=True)
class _Row:
    process: _Process
    parent: int
    group: int
    is_dead: bool


class Family:
    """The group of that leader and its descendants."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._outside: set[_Process] = set()

    def look(self) -> None:
        """Whom the family has now is known from now on, whatever becomes of those who started them."""
        rows = {row.process.pid: row for row in _rows()}
        started: defaultdict[int, list[_Row]] = defaultdict(list)
        for row in rows.values():
            started[row.parent].append(row)
        todo = [pid for pid, row in rows.items() if row.group == self._group or row.process in self._outside]
        seen = set(todo)
        while todo:
            for child in started[todo.pop()]:
                if child.process.pid not in seen:
                    seen.add(child.process.pid)
                    todo.append(child.process.pid)
        self._outside |= {rows[pid].process for pid in seen if rows[pid].group != self._group}

    @property
    def is_alive(self) -> bool:
        """A process of it that is known runs."""
        return lives(self._group) or any(map(_runs, self._outside))

    async def wait_gone(self) -> None:
        """Return once nothing of it that is known runs."""
        await wait_gone(self._group)
        pause_s = 0.005
        while any(map(_runs, self._outside)):
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LINGERS_S)

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
            if exists(self._group):
                os.killpg(self._group, sign)
        for process in self._outside:
            if _runs(process):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, sign)


def _runs(process: _Process) -> bool:
    row = _row(str(process.pid))
    return row is not None and row.process == process and not row.is_dead


def _rows() -> list[_Row]:
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [row for row in map(_row, names) if row is not None]


def _row(pid: str) -> _Row | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    process = _Process(int(pid), int(fields[19]))
    return _Row(process, parent=int(fields[1]), group=int(fields[2]), is_dead=fields[0] in (b"Z", b"X"))
