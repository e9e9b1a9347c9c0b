"""One process of a scenario: it looks at what is there, works until it is killed or at rest, and judges the rest."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.testing.crashes.journal import Journal, Moment, read_journal
from retinue.testing.crashes.points import KillPoint
from retinue.testing.crashes.scenario import CrashScenario
from retinue.testing.crashes.site import Site
from retinue.testing.crashes.state import State, look
from retinue.testing.crashes.watch import Watch
from retinue.testing.host import errors_of

__all__ = ["Account", "Place", "live"]


class Place(Struct, frozen=True):
    """Where the files of one plan are."""

    folder: str

    @property
    def work(self) -> Path:
        """The working folder of the agents."""
        return Path(self.folder) / "work"

    @property
    def journal(self) -> Path:
        """What all processes did."""
        return Path(self.folder) / "journal"

    @property
    def account(self) -> Path:
        """What the last process found at its end."""
        return Path(self.folder) / "account"

    @property
    def modules(self) -> Path:
        """The modules that the last process had to import."""
        return Path(self.folder) / "modules"

    def output(self, life: int) -> Path:
        """What a process printed."""
        return Path(self.folder) / f"output-{life}"


class Account(Struct, frozen=True, kw_only=True):
    """What a plan came to."""

    lines: list[str]
    """The end state."""
    problems: list[str]
    """Rules that are broken, whatever an undisturbed run does."""
    bodies: dict[str, int]
    """How often each outside tool of each session began, in all processes."""
    unknown: dict[str, int]
    """How many of them were answered with an unknown outcome."""


async def live(scenario: CrashScenario, place: Place, life: int, kill_at: KillPoint | None) -> None:
    """The process has come to rest and its account is written; or it does not return."""
    watch = Watch(Journal(place.journal), life, kill_at)
    site = Site(place.work, watch)
    before = await look(site.database, site.folder)
    problems: list[str] = []
    with errors_of(logging.getLogger("retinue")) as logged:
        try:
            with anyio.fail_after(scenario.patience_s):
                async with scenario.open(site) as app:
                    watch.install(app.host)
                    drive = (scenario.resume or scenario.start) if before.records else scenario.start
                    await drive(app)
                    await app.host.sessions.writer.committed()
        except TimeoutError:
            problems.append(f"process {life} did not come to rest within {scenario.patience_s:g} s")
    problems.extend(f"process {life} logged an error: {error}" for error in logged)
    after = await look(site.database, site.folder)
    journal = read_journal(place.journal)
    account = Account(
        lines=after.lines(scenario.smooth),
        problems=[*problems, *after.problems(), *_needless(before, after, journal, life), *_doubled(after, journal)],
        bodies=_bodies(after, journal),
        unknown=dict(Counter(after.unknown_calls())),
    )
    place.account.write_bytes(msgspec.json.encode(account))


def _needless(before: State, after: State, journal: list[Moment], life: int) -> Iterator[str]:
    """Requests of this process for sessions that had nothing to do when it began, and got nothing to do."""
    asked = Counter(m.session_id for m in journal if m.life == life and m.point.occasion == "at model request")
    for id in before.records:
        is_done = id not in before.owing and before.last_turn(id) == after.last_turn(id) > 0
        if is_done and asked[id]:
            yield f"{after.path(id)}: it had ended, and process {life} asked the model for it {asked[id]} times"


def _doubled(after: State, journal: list[Moment]) -> Iterator[str]:
    """Calls that were made twice although they may not be, or that made something else the second time."""
    starts: Counter[tuple[str, str, str]] = Counter()
    made: dict[tuple[str, str, str], dict[str, str]] = {}
    for moment in journal:
        key = (moment.session_id, moment.point.tool, moment.call)
        if moment.point.occasion == "at the start of" and moment.effect == "outside":
            starts[key] += 1
        elif moment.point.occasion == "at the end of" and moment.effect == "rows":
            ids = dict(moment.ids)
            if made.setdefault(key, ids) != ids:
                yield f"{_call(after, key)} was made again and is another one now: {made[key]}, then {ids}"
    yield from (f"{_call(after, key)} ran {count} times" for key, count in starts.items() if count > 1)


def _call(state: State, key: tuple[str, str, str]) -> str:
    session_id, tool, call = key
    return f"{state.path(SessionId(session_id))}: the call of {tool} in {call}"


def _bodies(after: State, journal: list[Moment]) -> dict[str, int]:
    return dict(
        Counter(
            f"{after.path(SessionId(moment.session_id))} {moment.point.tool}"
            for moment in journal
            if moment.point.occasion == "at the start of" and moment.effect == "outside"
        )
    )
