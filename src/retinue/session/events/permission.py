"""What may be done: the presets, and who was asked about what."""

from __future__ import annotations

from typing import Literal

from retinue.session.events.logged import Logged

__all__ = ["ApprovalAsked", "ApprovalDecided", "ExternalPermission", "SandboxMode"]


class SandboxMode(Logged, frozen=True):
    """`sandbox/mode`: the permission preset from here on, and who set it."""

    mode: str
    source: str


class ApprovalAsked(Logged, frozen=True, kw_only=True):
    """`approval/asked`: a call is held until somebody decides. Nothing of it has begun, and a result withdraws it."""

    id: str
    turn: int
    step: int
    index: int
    call_id: str
    name: str
    rule: str
    """The rule that asks."""


class ApprovalDecided(Logged, frozen=True, kw_only=True):
    """`approval/decided`: what was decided about a call that is held, and whether by somebody or by the policy."""

    id: str
    turn: int
    step: int
    index: int
    verb: Literal["allow", "reject"]
    by: Literal["user", "policy"]
    grants: str | None = None
    """The rule that does not ask this agent any more."""
    words: str | None = None
    """Why not, for the model."""


class ExternalPermission(Logged, frozen=True, kw_only=True):
    """`external/permission`: the program asked whether it may make a call of its own, and what was decided."""

    turn: int
    step: int
    title: str
    """What the program calls it."""
    verb: Literal["allow", "reject"]
    by: Literal["user", "policy"]
    always: bool = False
    """This child's program is not asked about any more."""
