"""Which groups of commands and other programs run, in files, so that what a killed process left is ended by the next.

Linux only, since it rests on /proc. A number that another process has by now is never signalled: a group is ours if its
leader began when we noted it, or, once that is gone, if one of its members still carries the mark of the owner in the
environment that it was started with. A number stays taken as long as anybody is in its group.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from retinue.base.processes import processes, start_time
from retinue.tools.output import write_private

__all__ = ["Leftover", "RunningGroups", "running_groups"]

_TERM_S = 1.0
"""From SIGTERM to SIGKILL."""
_log = logging.getLogger("retinue")


_MARK = "RETINUE_OWNER"


class Leftover(Struct, frozen=True):
    """A group whose process is dead. `started` is in ticks since boot."""

    path: Path
    pid: int
    started: int
    is_running: bool


class RunningGroups:
    """The files of one folder, each named after the leader of a group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own = start_time(os.getpid())
        self.mark: Mapping[str, str] = {} if own is None else {_MARK: _mark_of(os.getpid(), own)}
        """What commands must have in their environment, so that their group is known when its leader is gone."""

    def add(self, pid: int) -> None:
        """The group is this process's. A failure is logged: the command runs all the same."""
        started, own = start_time(pid), start_time(os.getpid())
        if started is None or own is None:
            return
        try:
            write_private(self._folder / str(pid), f"{pid} {started} {os.getpid()} {own}\n".encode())
        except OSError as error:
            _log.warning("that command %s runs could not be noted: %s", pid, error)

    def remove(self, pid: int) -> None:
        """The group is gone."""
        with suppress(OSError):
            (self._folder / str(pid)).unlink()

    def leftovers(self) -> list[Leftover]:
        """The groups that dead processes began and have not taken out."""
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.name.isdigit())
        except OSError:
            return []
        found: list[Leftover] = []
        for path in paths:
            try:
                pid, started, owner, owner_started = map(int, path.read_text().split())
            except (OSError, ValueError):
                continue
            if start_time(owner) != owner_started:
                runs = start_time(pid) == started or _has_marked_member(pid, _mark_of(owner, owner_started))
                found.append(Leftover(path, pid, started, runs))
        return found

    def reap(self) -> None:
        """What dead processes left running is ended. Blocks for a second if something does not end at once."""
        left: list[tuple[int, int]] = []
        for found in self.leftovers():
            if found.is_running:
                left.append((found.pid, found.started))
            else:
                self.remove(found.pid)
        for pid, started in left:
            _signal(pid, started, signal.SIGTERM)
        end = time.monotonic() + _TERM_S
        while any(_exists(pid) for pid, _ in left) and time.monotonic() < end:
            time.sleep(0.02)
        for pid, started in left:
            _signal(pid, started, signal.SIGKILL)
            self.remove(pid)


async def running_groups(home: Path | None) -> RunningGroups | None:
    """Those of a home; what dead processes left running there was ended. None without a home."""
    if home is None:
        return None
    groups = RunningGroups(home / "running")
    await to_thread.run_sync(groups.reap)
    return groups


def _mark_of(owner: int, started: int) -> str:
    return f"{owner}.{started}"


def _has_marked_member(group: int, mark: str) -> bool:
    """A process of the group, which leads a session of its own, was started with that mark by whoever began it."""
    if not _exists(group):
        return False
    wanted = f"{_MARK}={mark}".encode()
    for found in processes():
        if found.group == found.session == group:
            try:
                with open(f"/proc/{found.pid}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        return True
            except OSError:
                continue
    return False


def _signal(pid: int, started: int, sign: signal.Signals) -> None:
    # A leader that just died leaves its number to its group, so that nobody else can have it while the group lives.
    if start_time(pid) in (started, None):
        with suppress(OSError):
            os.killpg(pid, sign)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True
