"""What an agent is doing: one tagged value, so that impossible mixtures cannot be written down."""

from __future__ import annotations

from typing import Literal, TypeAlias

import anyio
from msgspec import Struct, field

__all__ = ["Cause", "CauseKind", "Idle", "Maintenance", "Opening", "Phase", "Running"]

CauseKind: TypeAlias = Literal["user", "parent", "hook", "limit", "disposed", "store"]


class Cause(Struct, frozen=True):
    """Why an activity was cancelled. `detail` names the hook's reason or the limit."""

    kind: CauseKind
    detail: str | None = None


class Opening(Struct):
    """Not published yet; wakes are remembered."""

    wake: bool = False


class Idle(Struct):
    """Nothing runs; the next wake starts a turn."""


class Running(Struct):
    """A turn runs, or is about to. The first cause wins."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    cause: Cause | None = None
    wake: bool = False
    """A wake that came after the abort, to be honoured when the activity has ended."""
    resumes: bool = False
    """An instruction came after the abort: the queue goes on behind it and is not parked."""

    def cancel(self, cause: Cause) -> None:
        """The activity ends as soon as it can."""
        if self.cause is None:
            self.cause = cause
            self.scope.cancel()


class Maintenance(Struct):
    """The host works on an idle agent; no turn starts meanwhile."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    cause: Cause | None = None
    wake: bool = False

    def cancel(self, cause: Cause) -> None:
        """The work ends as soon as it can."""
        if self.cause is None:
            self.cause = cause
            self.scope.cancel()


Phase: TypeAlias = Opening | Idle | Running | Maintenance
