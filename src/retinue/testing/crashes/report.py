"""What an exploration found, in words that say what to do next."""

from __future__ import annotations

from dataclasses import dataclass, field

from retinue.testing.crashes.points import Plan, render_plan

__all__ = ["CrashFailure", "CrashReport"]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashFailure:
    """One plan whose end is not that of the undisturbed run, or breaks a rule."""

    scenario: str
    plan: Plan
    problems: tuple[str, ...]

    def __str__(self) -> str:
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        where = render_plan(self.plan)
        return (
            f"{self.scenario}, killed {where}:{lines}\n  to see it alone: explore_crashes(..., only={where!r}), or "
            f"--crash-at {where!r} with pytest"
        )


@dataclass(slots=True, kw_only=True)
class CrashReport:
    """What was tried, and what was wrong."""

    scenario: str
    points: list[str] = field(default_factory=list[str])
    """The distinct points at which the process was killed once."""
    doubles: list[str] = field(default_factory=list[str])
    """The pairs of points at which it was killed, and killed again while it recovered."""
    unreached: list[str] = field(default_factory=list[str])
    """Plans in which a process came to its end before its point; what it left was compared all the same."""
    failures: list[CrashFailure] = field(default_factory=list[CrashFailure])
    seconds: float = 0.0

    def __str__(self) -> str:
        tried = f"{len(self.points)} kill points, {len(self.doubles)} killed twice, {len(self.unreached)} not reached"
        return f"{self.scenario}: {tried}, {len(self.failures)} failures, {self.seconds:.1f} s"

    def check(self) -> None:
        """Return if nothing was wrong. Raises: AssertionError with the first few failures."""
        if self.failures:
            shown = "\n".join(str(failure) for failure in self.failures[:_SHOWN])
            rest = len(self.failures) - _SHOWN
            more = f"\nand {rest} more" if rest > 0 else ""
            raise AssertionError(f"{self}\n{shown}{more}")
