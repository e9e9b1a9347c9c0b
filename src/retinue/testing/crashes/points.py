"""Where a process can be killed, as values that people can read and give back."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.errors import BadInput

__all__ = ["KillPoint", "Occasion", "Plan", "parse_plan", "render_plan"]

Occasion: TypeAlias = Literal[
    "before commit", "after commit", "at model request", "at model reply", "at the start of", "at the end of"
]

_COMMIT = re.compile(r"(before commit|after commit) (\d+)")
_MODEL = re.compile(r"(at model request|at model reply) (\d+) of (.+)")
_TOOL = re.compile(r"(at the start of|at the end of) (\S+) (\d+) of (.+)")
_THEN = "; then "


class KillPoint(Struct, frozen=True):
    """One instant in the life of a process. `number` counts, from 1, what is equal but for it."""

    occasion: Occasion
    number: int
    session: str = ""
    """Label of the session; the id of one without label."""
    tool: str = ""

    def __str__(self) -> str:
        if not self.session:
            return f"{self.occasion} {self.number}"
        if not self.tool:
            return f"{self.occasion} {self.number} of {self.session}"
        return f"{self.occasion} {self.tool} {self.number} of {self.session}"


Plan: TypeAlias = tuple[KillPoint, ...]
"""Where the first process is killed, where the one after it, and so on."""


def render_plan(plan: Plan) -> str:
    """The plan in words, which `parse_plan` reads."""
    return _THEN.join(str(point) for point in plan)


def parse_plan(text: str) -> Plan:
    """The plan that `render_plan` wrote. Raises: BadInput."""
    return tuple(_parse(part.strip()) for part in text.split(_THEN))


def _parse(text: str) -> KillPoint:
    if found := _COMMIT.fullmatch(text):
        return KillPoint(_occasion(found[1]), int(found[2]))
    if found := _MODEL.fullmatch(text):
        return KillPoint(_occasion(found[1]), int(found[2]), found[3])
    if found := _TOOL.fullmatch(text):
        return KillPoint(_occasion(found[1]), int(found[3]), found[4], found[2])
    raise BadInput(f"{text!r} is no kill point; copy one from a report, such as 'after commit 17'")


def _occasion(text: str) -> Occasion:
    for occasion in _OCCASIONS:
        if occasion == text:
            return occasion
    raise AssertionError(text)


_OCCASIONS: tuple[Occasion, ...] = (
    "before commit",
    "after commit",
    "at model request",
    "at model reply",
    "at the start of",
    "at the end of",
)
