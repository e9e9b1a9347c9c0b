"""Leases in the database: who drives which tree, and with which fence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import apsw

from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.session.store import Lease
from retinue.store._rules import session_held
from retinue.store.sqlite._owners import Owner
from retinue.store.sqlite._sql import SQL, Row, Transaction, run

LEASE_TERM_S = 30.0
"""How long a lease holds without renewal, for owners whose death cannot be seen. Its owner trusts it half as long."""


class Leases:
    """Changes leases for one owner. Each method is one short transaction and may raise apsw.BusyError, unchanged."""

    __slots__ = ("_clock", "_connection", "_owner")

    def __init__(self, connection: apsw.Connection, owner: Owner, clock: Clock) -> None:
        self._connection = connection
        self._owner = owner
        self._clock = clock

    @property
    def owner(self) -> str:
        """The id of the owner."""
        return self._owner.id

    def acquire(self, root: SessionId) -> Lease:
        """The lease is ours, with a new fence. Raises: SessionHeld."""
        valid_until_s = self._clock.elapsed_s() + LEASE_TERM_S / 2
        with Transaction(self._connection, "IMMEDIATE"):
            found = self._found(root)
            if found is not None and found[0] != self._owner.id:
                self._refuse(root, *found)
            taken = self._all("take_lease", root, self._owner.id, self._expiry())
        return Lease(root=root, fence=cast("int", taken[0][0]), owner=self._owner.id, valid_until_s=valid_until_s)

    def holder(self, root: SessionId) -> str | None:
        """The living owner whose lease of the tree has not run out."""
        found = self._found(root)
        return None if found is None else found[0]

    def _found(self, root: SessionId) -> tuple[str, int] | None:
        """That owner, and for how many milliseconds it may hold the lease without renewing it."""
        rows = self._all("read_lease", root)
        _, holder, expires_at = cast("tuple[int, str | None, int]", rows[0]) if rows else (0, None, 0)
        rest = expires_at - self._now_ms()
        return (holder, rest) if holder is not None and rest > 0 and self._owner.is_alive(holder) else None

    def _refuse(self, root: SessionId, holder: str, rest_ms: int) -> None:
        info = self._owner.info(holder)
        who = "another process" if info is None else f"process {info.pid} on {info.host} (since {_shown(info.since)})"
        raise session_held(root, who, rest_ms)

    def renew(self, leases: Sequence[Lease]) -> list[Lease | None]:
        """Each lease with a later end, or None where it is lost."""
        valid_until_s = self._clock.elapsed_s() + LEASE_TERM_S / 2
        renewed: list[Lease | None] = []
        with Transaction(self._connection, "IMMEDIATE"):
            for lease in leases:
                self._all("renew_lease", lease.root, lease.owner, lease.fence, self._expiry())
                is_ours = self._connection.changes() == 1 and lease.owner == self._owner.id
                later = Lease(root=lease.root, fence=lease.fence, owner=lease.owner, valid_until_s=valid_until_s)
                renewed.append(later if is_ours else None)
        return renewed

    def release(self, lease: Lease) -> None:
        """The lease is free if it was ours. Its fence grows, so that late batches are refused."""
        if lease.owner == self._owner.id:
            with Transaction(self._connection, "IMMEDIATE"):
                self._all("free_lease", lease.root, lease.owner, lease.fence)

    def release_all(self) -> None:
        """Every lease of this owner is free."""
        with Transaction(self._connection, "IMMEDIATE"):
            self._all("free_all_leases", self._owner.id)

    def _now_ms(self) -> int:
        """On the clock that nobody sets: the wall clock of one process may jump past the lease of another, which lives
        and is sure of it. All processes of a machine share this clock until it starts anew, and then no owner lives."""
        return int(self._clock.elapsed_s() * 1000)

    def _expiry(self) -> int:
        return self._now_ms() + int(LEASE_TERM_S * 1000)

    def _all(self, name: str, *values: int | str) -> list[Row]:
        return run(self._connection, SQL[name], values)


def _shown(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="seconds")
