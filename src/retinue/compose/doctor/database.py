"""What is wrong with the database of a home: the file, its logs and mailboxes, and work that nobody does.

Each tree is looked at as it was at one moment. What a living process has under way there is in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from retinue.base.ids import SessionId
from retinue.compose.doctor.finding import Finding
from retinue.errors import CorruptSession, RetinueError, SchemaTooNew, StoreFailure
from retinue.session.folds import Turns
from retinue.session.invariants import tree_violations, violations
from retinue.session.store import SessionRecord
from retinue.store.sqlite import InspectedSession, InspectedTree, Inspector

__all__ = ["Looked", "database_findings"]


class Looked:
    """How much was looked at, and which sessions there are."""

    def __init__(self) -> None:
        self.trees = 0
        self.sessions: set[SessionId] = set()
        self.is_whole = False
        """Every session of the home is among them."""


def database_findings(path: Path, looked: Looked) -> Iterator[Finding]:
    """What is wrong there, and in `looked` what was seen. A database that does not exist is in order."""
    if not path.exists() or not path.stat().st_size:
        looked.is_whole = True
        return
    try:
        inspector = Inspector(str(path))
    except RetinueError as error:
        yield _unusable(path, error)
        return
    with closing(inspector):
        for text in inspector.damage():
            yield Finding(
                severity="error",
                code="DATABASE_DAMAGED",
                text=f"{path}: {text}",
                advice="restore a copy that `retinue backup` made, or save what `sqlite3 FILE .recover` can read",
            )
        try:
            for what, count in inspector.orphans():
                yield Finding(
                    severity="warning",
                    code="ROWS_WITHOUT_SESSION",
                    text=f"{path}: {count} {what}: their session is not there, so nobody reads them",
                    advice="they only take space; if nobody edited the file by hand, report this",
                )
            for root in inspector.roots():
                tree = inspector.tree(root)
                looked.trees += 1
                looked.sessions.update(session.id for session in tree.sessions)
                yield from _tree_findings(tree)
            looked.is_whole = True
        except StoreFailure as error:
            yield _unusable(path, error)


def _unusable(path: Path, error: RetinueError) -> Finding:
    journal = path.with_name(path.name + "-journal")
    if journal.exists() and journal.stat().st_size:
        return Finding(
            severity="warning",
            code="DATABASE_CUT_OFF",
            text=f"{path} is being made, or the process that made it was cut off",
            advice="retinue run TASK there repairs it",
        )
    use = "use the version that wrote it" if isinstance(error, SchemaTooNew) else "see the message"
    return Finding(severity="error", code="DATABASE_UNUSABLE", text=str(error), advice=use)


def _tree_findings(tree: InspectedTree) -> Iterator[Finding]:
    for session in tree.sessions:
        yield from _session_findings(tree, session)
    yield from _edges(tree)
    owing = [session.id for session in tree.sessions if _owes(session)]
    if tree.is_driven or not tree.sessions:
        return
    if owing:
        why = "the process that drove it died" if tree.is_abandoned else "nobody drives it"
        yield Finding(
            severity="warning",
            code="WORK_LEFT",
            session_id=tree.root,
            text=f"work is left in {len(owing)} of its {len(tree.sessions)} sessions ({', '.join(owing[:3])}"
            f"{', ...' if len(owing) > 3 else ''}), and {why}",
            advice=f"retinue resume {tree.root}",
        )
    elif tree.is_abandoned:
        yield Finding(
            severity="note",
            code="LEASE_OF_THE_DEAD",
            session_id=tree.root,
            text="the process that drove it died; no work is left",
            advice="nothing: whoever needs the tree next takes it over at once",
        )


def _owes(session: InspectedSession) -> bool:
    is_open = session.open_turn is not None or session.open_activation is not None
    return is_open or any(row.state == "pending" and row.delivery.wake and not row.parked for row in session.rows)


def _session_findings(tree: InspectedTree, session: InspectedSession) -> Iterator[Finding]:
    for text in session.unreadable:
        yield Finding(
            severity="error",
            code="SESSION_UNREADABLE",
            session_id=session.id,
            text=text,
            advice=f"restore a copy that `retinue backup` made, or remove the tree: retinue prune {tree.root}",
        )
    if session.events is None:
        return
    advice = f"report this with the output of: retinue log {session.id} --json"
    rows = () if session.unreadable else session.rows
    for violation in violations(session.events, rows):
        yield Finding(severity="error", code="LOG_BROKEN", session_id=session.id, text=str(violation), advice=advice)
    turns = Turns(session.id)
    try:
        for event in session.events:
            turns.apply(event)
    except CorruptSession as error:
        yield Finding(
            severity="error",
            code="LOG_CANNOT_GO_ON",
            session_id=session.id,
            text=f"no process can resume it: {error}",
            advice=advice,
        )
        return
    turn = None if turns.open is None else turns.open.number
    activation = None if turns.activation is None else turns.activation.epoch
    if (turn, activation) != (session.open_turn, session.open_activation):
        yield Finding(
            severity="error",
            code="WORK_MISCOUNTED",
            session_id=session.id,
            text=f"its log leaves turn {turn} and activation {activation} open, and the store believes "
            f"{session.open_turn} and {session.open_activation}: recovery would look in the wrong place",
            advice=advice,
        )


def _edges(tree: InspectedTree) -> Iterator[Finding]:
    known = {session.id for session in tree.sessions}
    records: list[SessionRecord] = []
    for session in tree.sessions:
        header = session.header
        if header is None or session.events is None or session.unreadable:
            continue  # told already; rules between it and others would only repeat that
        records.append(SessionRecord(header=header, events=session.events, rows=session.rows))
        if header.origin == "subagent" and header.parent_session not in known:
            yield Finding(
                severity="warning",
                code="PARENT_MISSING",
                session_id=session.id,
                text=f"its parent {header.parent_session!r} is not stored here; what it reports reaches nobody",
                advice=f"retinue log {session.id} shows what it did",
            )
    if len(records) < len(tree.sessions):
        return
    for id, violation in tree_violations(records):
        yield Finding(
            severity="error",
            code="TREE_BROKEN",
            session_id=id,
            text=str(violation),
            advice=f"report this with the output of: retinue tree {tree.root} --json",
        )
