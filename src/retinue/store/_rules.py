"""What every store refuses, and in which words."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.base.ids import MessageId, SessionId, is_text
from retinue.errors import (
    AlreadyExists,
    BadInput,
    ClaimConflict,
    IdConflict,
    LeaseLost,
    NotQuiet,
    RetinueError,
    SessionHeld,
    SessionNotFound,
    StoreFailure,
)
from retinue.session.events import ActivationEnd, ActivationStart, Event, TurnEnd, TurnStart
from retinue.session.rows import Append, Batch, Claim, Replace

VALUE_ERRORS = (TypeError, ValueError, OverflowError)
"""What encoding raises for a value that cannot be stored."""


def check_guard(id: SessionId, root: str, batch: Batch) -> None:
    """Return if the batch names a fence of the session's tree. Raises: StoreFailure."""
    if not any(guarded == root for guarded, _ in batch.fences):
        raise StoreFailure(f"session {id!r} cannot change without the fence of its tree, {root!r}")


def check_fence(root: SessionId, stored: int, fence: int) -> None:
    """Return if the stored fence is the batch's. Raises: LeaseLost."""
    if stored != fence:
        raise LeaseLost(
            f"the tree of session {root!r} has fence {stored}, this process holds {fence}: "
            "another process took it over, or it was released; load its sessions again"
        )


def check_seqs(id: SessionId, events: Sequence[Event]) -> None:
    """Return if the events follow each other without a gap. Raises: StoreFailure."""
    for seq, event in enumerate(events, events[0].seq):
        if event.seq != seq:
            raise StoreFailure(f"session {id!r}: event {event.seq} stands where event {seq} belongs")


def work_left(events: Sequence[Event]) -> tuple[int | None, int | None]:
    """The turn and the activation that are open after these events; 0 for none, None if they say nothing about it."""
    turn = activation = None
    for event in events:
        match event.data:
            case TurnStart(turn=number):
                turn = number
            case TurnEnd():
                turn = 0
            case ActivationStart(epoch=epoch):
                activation = epoch
            case ActivationEnd():
                activation = 0
            case _:
                pass
    return turn, activation


def refusal(error: Exception) -> Exception:
    """The outcome of a batch that was refused with `error`."""
    if isinstance(error, RetinueError):
        return error
    result = StoreFailure(f"the batch holds a value that cannot be stored: {type(error).__name__}: {error}")
    result.__cause__ = error
    return result


def not_quiet(id: SessionId) -> NotQuiet:
    """A settlement that came too early."""
    return NotQuiet(f"session {id!r} still has a message to run, or a child at work; it settles later")


def session_exists(id: SessionId) -> AlreadyExists:
    """A second session of that id."""
    return AlreadyExists(f"session {id!r} exists already; choose another id")


def session_unknown(id: SessionId) -> StoreFailure:
    """A log or a claim of a session that is not there."""
    return StoreFailure(f"session {id!r} is not stored here; its log and mailbox cannot change")


def log_gap(op: Append, length: object) -> StoreFailure:
    """Events that do not follow the stored ones."""
    return StoreFailure(
        f"session {op.session_id!r}: event {op.events[0].seq} cannot follow a log of {length} events; "
        "load the session again"
    )


def id_conflict(id: MessageId) -> IdConflict:
    """A message id that means something else already."""
    return IdConflict(f"message id {id!r} was used before with other content; choose another id")


def replacement_used(id: MessageId) -> IdConflict:
    """A replacement under an id that is taken."""
    return IdConflict(f"message id {id!r} was used before; a replacement needs an id of its own")


def claim_conflict(op: Claim, changed: int) -> ClaimConflict:
    """A claim that would not change exactly its rows."""
    return ClaimConflict(
        f"session {op.session_id!r}: {changed} of the {len(op.ids)} messages claimed by turn {op.turn} were pending; "
        "load the session again"
    )


def nothing_to_replace(op: Replace) -> ClaimConflict:
    """A replacement for a row that is not pending."""
    return ClaimConflict(
        f"session {op.delivery.session_id!r}: message {op.old!r} is not pending there, so nothing replaces it"
    )


def session_not_found(id: SessionId) -> SessionNotFound:
    """A read of a session that is not there."""
    return SessionNotFound(f"no session {id!r} is stored here; list the sessions to see which are")


def tree_not_found(root: SessionId) -> SessionNotFound:
    """A tree without sessions."""
    return SessionNotFound(f"no tree with the root session {root!r} is stored here; list the sessions to see which are")


def lease_lost(root: SessionId) -> LeaseLost:
    """A tree that is changed as a whole by somebody who does not hold it."""
    return LeaseLost(f"the tree of session {root!r} is not held by this process any more; nothing of it was changed")


def check_prefix(prefix: str) -> None:
    """Return if a session can be meant by it. Raises: BadInput for an empty one, which every id begins with."""
    if not prefix:
        raise BadInput("the id of a session is empty; list the sessions to see which are stored")
    if not is_text(prefix):
        raise SessionNotFound(f"no session whose id begins with {prefix!r} is stored here")


def resolved(prefix: str, found: Sequence[SessionId]) -> SessionId:
    """The one session meant by `prefix`; `found` are, in order, all or the first few whose id begins with it.

    Raises: SessionNotFound, BadInput.
    """
    if not found:
        raise SessionNotFound(f"no session whose id begins with {prefix!r} is stored here")
    if len(found) > 1 and found[0] != prefix:
        shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise BadInput(f"{prefix!r} begins the ids of several sessions ({shown}); give more of it")
    return found[0]


def session_held(root: SessionId, holder: str, rest_ms: int) -> SessionHeld:
    """A lease that a living process has for `rest_ms` more, unless it renews it."""
    return SessionHeld(
        f"session {root!r} is driven by {holder}; end that process, or, if it hangs, "
        f"try again in {max(1, rest_ms // 1000)} s; `retinue send` reaches it as it is"
    )
