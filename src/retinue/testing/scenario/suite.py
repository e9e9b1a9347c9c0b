"""Runs scenarios and compares, or writes anew what they expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from retinue.base.json import JSON, decode
from retinue.testing.scenario.folder import Folder, log_number, pin_number
from retinue.testing.scenario.logs import compare_logs, is_json
from retinue.testing.scenario.performance import Performance, perform
from retinue.testing.scenario.pins import Pin
from retinue.testing.scenario.steps import PATIENCE_S
from retinue.testing.scenario.words import changed_words, differences

__all__ = ["Refreshed", "refresh", "run", "write"]

_SHOWN = 20
"""Differences of one scenario that are told; the rest is counted."""


async def run(path: Path, *, patience_s: float = PATIENCE_S) -> list[str]:
    """What is wrong with the scenario in that folder: nothing, if it came to what it expects.

    A step that has not happened after `patience_s` seconds is one that will not. Raises: ConfigError if its files do
    not hold.
    """
    folder = Folder.read(path)
    problems = list(folder.misplaced())
    performance = await perform(folder, patience_s=patience_s)
    problems += performance.problems or _differences(folder, performance)
    shown = problems[:_SHOWN]
    return [*shown, *([f"… and {len(problems) - len(shown)} more"] if len(shown) < len(problems) else [])]


def _differences(folder: Folder, came: Performance) -> Iterator[str]:
    assert came.pin is not None
    who = {session.number: session.who for session in came.sessions}
    for name, actual in sorted(came.files.items()):
        expected, number = folder.text(name), log_number(name)
        if expected is None:
            yield f"{name} is missing: {_why(name)}"
        elif expected != actual and number is not None:
            yield from (f"{who[number]}, {line}" for line in compare_logs(expected, actual))
        elif expected != actual or pin_number(name):
            yield from _compare(name, expected, actual, came.pin)
    for file in sorted(folder.path.iterdir()):
        number = log_number(file.name)
        if number is not None and number not in who:
            yield f"{file.name} is an orphan: there were {len(who)} sessions"


def _why(name: str) -> str:
    if pin_number(name):
        return "it is declared; refresh writes it"
    return "refresh writes it"


def _compare(name: str, expected: str, actual: str, pin: Pin) -> Iterator[str]:
    if pin_number(name):
        if not expected.strip():
            yield f"{name} is empty: it must pin what differs from the class, or not be declared"
            return
        if expected in (pin.system, pin.tools):
            yield f"{name} is equal to the pin of the class: it must differ, or not be declared"
            return
    if expected == actual:
        return
    if name.endswith(".json") and is_json(expected):
        yield from (f"{name}: {line}" for line in differences(_tools_by_name(expected), _tools_by_name(actual)))
    else:
        yield f"{name}: {changed_words(expected, actual)}"


def _tools_by_name(text: str) -> JSON:
    """The value of the text; a list of tools by their names, so that each is compared with itself."""
    value = decode(text)
    if isinstance(value, list):
        return {str(tool.get("name")): tool for tool in value if isinstance(tool, dict)}
    return value


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did. With problems nothing was written."""

    problems: Sequence[str]
    changed: Sequence[str] = ()
    """Names of the files that were written, or removed because nothing expects them any more."""


async def refresh(path: Path, *, patience_s: float = PATIENCE_S) -> Refreshed:
    """The scenario expects what it comes to now. One that breaks a rule stays as it is.

    `patience_s` as in `run`. Raises: ConfigError if its files do not hold.
    """
    folder = Folder.read(path)
    performance = await perform(folder, patience_s=patience_s)
    if performance.problems:
        return Refreshed(performance.problems)
    changed = write(folder, performance)
    left = list(Folder.read(path).misplaced())
    return Refreshed(left, changed)


def write(folder: Folder, performance: Performance) -> list[str]:
    """The names of the expected files that changed."""
    stale = [
        file.name
        for file in sorted(folder.path.iterdir())
        if file.name not in performance.files
        and (log_number(file.name) is not None or pin_number(file.name) is not None)
    ]
    for name in stale:
        (folder.path / name).unlink()
    fresh = [name for name, text in sorted(performance.files.items()) if folder.text(name) != text]
    for name in fresh:
        (folder.path / name).write_text(performance.files[name], encoding="utf-8")
    return [*stale, *fresh]
