"""The end of many tasks at once: with their owner, or with the runtime. Source: behaviour TK-35..38."""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from retinue.tasks.entry import Entry
from retinue.tasks.settlement import Settlement

__all__ = ["end_all"]

_ORPHANED = "may be orphaned: "


async def end_all(entries: Iterable[Entry], reason: str, settlement: Settlement, *, wait_s: float) -> None:
    """Nothing of `entries` runs any more, as far as that can be brought about within `wait_s`; none sends a notice.

    A task that cannot be cancelled, or does not end in time, counts as failed and says that it may be orphaned.
    """
    entries = list(entries)
    for entry in entries:
        if not entry.is_terminal:
            _stop(entry, reason, settlement)
    with anyio.move_on_after(wait_s, shield=True):
        for entry in entries:
            await entry.over.wait()
    for entry in entries:
        if not entry.is_terminal:
            settlement.force(entry, f"{_ORPHANED}it did not end within {wait_s:g} s")


def _stop(entry: Entry, reason: str, settlement: Settlement) -> None:
    entry.is_reported = True
    try:
        entry.hooks.cancel(reason)
    except Exception as error:
        settlement.force(entry, f"{_ORPHANED}it could not be cancelled: {error}")
        return
    if entry.stopping(reason):
        settlement.changed(entry.owner)
