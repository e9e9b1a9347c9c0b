"""The side of the explorer: a fork server of a scenario, asked for one plan after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from retinue.errors import BadInput
from retinue.testing.crashes.journal import Moment, read_journal
from retinue.testing.crashes.life import Account, Place
from retinue.testing.crashes.points import Plan
from retinue.testing.crashes.reference import reference
from retinue.testing.crashes.scenario import CrashScenario
from retinue.testing.crashes.server import Done, Order, Work, main

__all__ = ["Forks", "Lives", "forks"]

_SHOWN_CHARS = 2000


class Lives(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one plan."""

    account: Account | None
    """What was found at the end; None if the last process failed before that."""
    moments: list[Moment]
    """What all processes did."""
    kills: int
    """How many points of the plan were reached."""
    failure: str | None = None
    """How the last process ended, if not as it should."""


class Forks:
    """Runs plans. Made by `forks`."""

    def __init__(self, orders: IO[bytes], answers: IO[bytes]) -> None:
        self._orders = orders
        self._answers = answers

    def run(self, plan: Plan, folder: Path) -> Lives:
        """The plan was carried out in `folder`, which did not exist. Blocks. Raises: BadInput if the server ended."""
        self._orders.write(msgspec.json.encode(Order(str(folder), plan)) + b"\n")
        self._orders.flush()
        answer = self._answers.readline()
        if not answer:
            raise BadInput("the fork server ended; above is why: most likely the module of the scenario fails to load")
        ends = msgspec.json.decode(answer, type=Done).ends
        place = Place(str(folder))
        has_account = ends[-1] == 0 and place.account.exists()
        return Lives(
            account=msgspec.json.decode(place.account.read_bytes(), type=Account) if has_account else None,
            moments=read_journal(place.journal) if place.journal.exists() else [],
            kills=len(ends) - 1,
            failure=None if has_account else _failure(place, len(ends), ends[-1]),
        )


def _failure(place: Place, life: int, end: int) -> str:
    how = f"was ended by signal {-end}" if end < 0 else f"ended with status {end}"
    said = place.output(life).read_text(encoding="utf-8", errors="replace").strip()
    return f"process {life} {how}" + (f":\n{said[-_SHOWN_CHARS:]}" if said else "")


@contextmanager
def forks(scenario: CrashScenario) -> Generator[Forks]:
    """A fork server that has loaded the scenario; it ends with the block.

    Raises: BadInput where processes cannot be forked, or for a scenario that another process cannot find.
    """
    if not hasattr(os, "fork"):
        raise BadInput("crash exploration forks its processes, which this platform cannot do; use Linux or macOS")
    work = Work(
        path=[entry or os.getcwd() for entry in sys.path],
        name=scenario.name,
        open=reference(scenario.open),
        start=reference(scenario.start),
        resume=reference(scenario.resume) if scenario.resume is not None else None,
        smooth=reference(scenario.smooth) if scenario.smooth is not None else None,
        patience_s=scenario.patience_s,
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"from {main.__module__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(msgspec.json.encode(work) + b"\n")
        server.stdin.flush()
        yield Forks(server.stdin, server.stdout)
