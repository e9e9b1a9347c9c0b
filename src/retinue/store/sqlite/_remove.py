"""Takes a whole tree out of the database. The space is used again; the file does not shrink."""

from __future__ import annotations

from typing import cast

import apsw

from retinue.base.ids import SessionId
from retinue.session.store import Lease
from retinue.store._rules import lease_lost, tree_not_found
from retinue.store.sqlite._sql import SQL, Transaction, run


def remove_tree(connection: apsw.Connection, lease: Lease, owner: str) -> list[SessionId]:
    """Sessions, logs and rows of the tree are gone, overwritten with zeros; the lease stays.

    A value that only they refer to goes with them. `owner` is who asks. Raises: LeaseLost, SessionNotFound; apsw
    errors.
    """
    root = lease.root
    cursor = connection.cursor()
    run(cursor, "PRAGMA secure_delete = ON")
    try:
        with Transaction(connection, "IMMEDIATE"):
            if lease.owner != owner or not run(cursor, SQL["is_leased"], (root, lease.owner, lease.fence)):
                raise lease_lost(root)
            ids = [cast("SessionId", row[1]) for row in run(cursor, SQL["read_tree"], (root,))]
            if not ids:
                raise tree_not_found(root)
            bodies = run(cursor, SQL["bodies_of_tree"], (root,))
            for name in ("remove_events", "remove_messages", "remove_sessions"):
                run(cursor, SQL[name], (root,))
            for body in bodies:
                run(cursor, SQL["remove_body"], body)
    finally:
        run(cursor, "PRAGMA secure_delete = OFF")
    return ids
