"""One process of a scenario: it looks at what is there, works until it is killed or at rest, and judges the rest."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from retinue.testing.crashes.journal import Journal, read_journal
from retinue.testing.crashes.points import KillPoint
from retinue.testing.crashes.scenario import CrashScenario
from retinue.testing.crashes.site import Site
from retinue.testing.crashes.state import look
from retinue.testing.crashes.verdict import bodies, doubled, needless
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
        problems=[*problems, *after.problems(), *needless(before, after, journal, life), *doubled(after, journal)],
        bodies=bodies(after, journal),
        unknown=dict(Counter(after.unknown_calls())),
    )
    place.account.write_bytes(msgspec.json.encode(account))
