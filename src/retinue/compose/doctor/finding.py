"""One thing that is not as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.base.ids import SessionId

__all__ = ["Finding", "Severity"]

Severity: TypeAlias = Literal["error", "warning", "note"]


class Finding(Struct, frozen=True, kw_only=True):
    """`error`: something is lost, broken or about to fail. `warning`: somebody should act. `note`: it does no harm."""

    severity: Severity
    code: str
    text: str
    """What is so, and what that means."""
    advice: str
    """What to do. A command in it begins with `retinue `."""
    session_id: SessionId | None = None
    leftover: Path | None = None
    """A file or folder that nobody uses any more, so that taking it away is harmless."""
