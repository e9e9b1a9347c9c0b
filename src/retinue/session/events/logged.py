"""What all that a log holds has in common."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["ErrorRecord", "Logged"]


class Logged(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A plain value whose defaults are left out where it is stored."""


class ErrorRecord(Logged, frozen=True):
    """A failure as the log keeps it."""

    code: str
    message: str
    status: int | None = None
    """What the model's server answered, of a failed request that it answered."""
    retry_after_s: float | None = None
    """How long the server asked to wait."""
