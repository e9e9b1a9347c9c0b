"""What the logs say about the permissions of one session: its preset, what it was given, and what it was granted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from retinue.errors import ConfigError
from retinue.session.events import ApprovalDecided, Event, SandboxMode, SessionHeader
from retinue.subagent.policy import DELEGATION

__all__ = ["PRESETS", "Preset", "Standing", "known_preset", "least"]

Preset: TypeAlias = Literal["read-only", "workspace-write", "full-access"]

PRESETS: tuple[Preset, ...] = get_args(Preset)
"""From the least to the most."""


def known_preset(preset: str) -> Preset:
    """`preset` as it is. Raises: ConfigError with those that exist."""
    match preset:
        case "read-only" | "workspace-write" | "full-access":
            return preset
        case _:
            raise ConfigError(f"there is no permission {preset!r}; there are {', '.join(PRESETS)}")


def least(one: Preset, other: Preset) -> Preset:
    """The one that permits less."""
    return one if PRESETS.index(one) <= PRESETS.index(other) else other


class Standing:
    """A fold of one log. `above` is the standing of the parent, if there is one."""

    __slots__ = ("__weakref__", "_seed", "above", "chosen", "given", "granted")

    def __init__(self, header: SessionHeader, above: Standing | None = None) -> None:
        self._seed = header.seed_length or 0
        self.above = above
        self.chosen: Preset | None = None
        """The newest preset that was set explicitly."""
        self.given: Preset | None = None
        """What a child was created with, the most that it may have."""
        self.granted: set[str] = set()
        """Rules that do not ask it any more. What a seed brought of its parent's does not count."""

    @property
    def preset(self) -> Preset | None:
        """What it may do by its own log; None if it has the default."""
        if self.chosen is None or self.given is None:
            return self.chosen or self.given
        return least(self.chosen, self.given)

    def follow(self, events: Sequence[Event]) -> None:
        """These events are accounted for. A preset that this version does not know counts as the least one."""
        for event in events:
            data = event.data
            if type(data) is SandboxMode:
                mode = data.mode if data.mode in PRESETS else "read-only"
                self.chosen = known_preset(mode)
                if data.source == DELEGATION:
                    self.given = known_preset(mode)
            elif type(data) is ApprovalDecided and data.grants is not None and event.seq >= self._seed:
                self.granted.add(data.grants)
