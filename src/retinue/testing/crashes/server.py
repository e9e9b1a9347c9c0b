"""The fork server: a clean process that has imported everything once, and forks for every process of a scenario.

It has one thread, no event loop and no connection, so a fork of it is as good as a process of its own, and costs a
fraction of one. It reads orders from its standard input and answers each on its standard output, one line of JSON each.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from retinue.testing.crashes.life import Place, live
from retinue.testing.crashes.points import KillPoint
from retinue.testing.crashes.reference import Reference
from retinue.testing.crashes.scenario import CrashScenario

__all__ = ["Order", "Work", "main", "serve"]

_GRACE_S = 10
"""A process that hangs without its loop is ended so long after its patience."""


class Work(Struct, frozen=True, kw_only=True):
    """A scenario, as it travels."""

    path: list[str]
    """Where modules are found."""
    name: str
    open: Reference
    start: Reference
    resume: Reference | None
    smooth: Reference | None
    patience_s: float

    def load(self) -> CrashScenario:
        """The scenario, in this process."""
        return CrashScenario(
            name=self.name,
            open=self.open.resolve(),
            start=self.start.resolve(),
            resume=self.resume.resolve() if self.resume is not None else None,
            smooth=self.smooth.resolve() if self.smooth is not None else None,
            patience_s=self.patience_s,
        )


class Order(Struct, frozen=True):
    """Live, and be killed there; in a fresh folder."""

    folder: str
    plan: tuple[KillPoint, ...]


class Done(Struct, frozen=True):
    """How each process ended: its exit status, or minus the signal that killed it."""

    ends: list[int]


def main() -> None:
    """Entry point of the process. It ends when its standard input does."""
    orders = sys.stdin.buffer
    work = msgspec.json.decode(orders.readline(), type=Work)
    sys.path[:] = work.path
    scenario = work.load()
    for line in orders:
        order = msgspec.json.decode(line, type=Order)
        answer = msgspec.json.encode(Done(serve(scenario, order)))
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
        if not order.plan:
            _import_what_was_needed(Place(order.folder).modules)


def _import_what_was_needed(modules: Path) -> None:
    """Later processes find everything imported that an undisturbed one came to need."""
    if modules.exists():
        for name in modules.read_text().split():
            with suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(scenario: CrashScenario, order: Order) -> list[int]:
    """One process after the other, until one of them was not killed by the plan; how they ended."""
    place = Place(order.folder)
    place.work.mkdir(parents=True)
    ends: list[int] = []
    for life, kill_at in enumerate((*order.plan, None), 1):
        ends.append(_one(scenario, place, life, kill_at))
        if ends[-1] != -signal.SIGKILL:
            break
    return ends


def _one(scenario: CrashScenario, place: Place, life: int, kill_at: KillPoint | None) -> int:
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        _redirect(place.output(life))
        os.chdir(place.work)
        signal.alarm(round(scenario.patience_s) + _GRACE_S)
        known = set(sys.modules)
        anyio.run(live, scenario, place, life, kill_at)
        place.modules.write_text("\n".join(sorted(set(sys.modules) - known)))
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _redirect(output: Path) -> None:
    silence = os.open(os.devnull, os.O_RDONLY)
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for source, target in ((silence, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
