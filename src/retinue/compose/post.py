"""Sending to stored sessions, whoever drives them: messages, and orders to interrupt or to stop.

What is sent is a row first. Whoever drives the tree is rung and reads it; if nobody does, it waits for the next resume.
Only the store is needed here, neither a model nor a plugin. Source: architecture, section 3; behaviour CI-02.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from retinue.base.ids import MessageId, SessionId, derived_id, is_text, new_message_id
from retinue.errors import BadInput, IdConflict, SessionNotFound
from retinue.model.content import Text, UserMessage
from retinue.session.folds import descriptor
from retinue.session.rows import Delivery
from retinue.session.store import SessionSummary
from retinue.session.table import Sessions

__all__ = ["Posted", "keyed_id", "post_message", "post_order"]


class Posted(Struct, frozen=True, kw_only=True):
    """The receipt: the row is stored, now or, with the same key, before."""

    session_id: SessionId
    root: SessionId
    message_id: MessageId
    driver: str | None
    """Who drives the tree and was told to look; None if nobody does, so that the row waits."""
    is_pending: bool
    """Nothing has become of it yet."""
    has_open_turn: bool
    """A turn of the session was open."""


async def post_message(sessions: Sessions, id: str, text: str, *, key: str | None = None) -> Posted:
    """The text is pending for the session `id` (or a unique prefix) as a turn of its own, from the user.

    With `key`, the same text again is not sent again. Raises: SessionNotFound; BadInput for an empty text or key, and
    for a session that takes no messages; IdConflict for a key that was used with another text.
    """
    if not text.strip():
        raise BadInput("a message needs some text")
    known, summary = await _found(sessions, id)
    if summary.header.origin is not None:
        await _check_continuable(sessions, known)
    delivery = Delivery(
        session_id=known,
        message=UserMessage(keyed_id("message", known, key), (Text(text),)),
        target="next-turn",
        wake=True,
        accepted_at=sessions.clock.now_ms(),
    )
    return await _post(sessions, delivery, summary)


async def post_order(
    sessions: Sessions, kind: Literal["interrupt", "stop"], id: str, *, key: str | None = None
) -> Posted:
    """The order to the session `id` (or a unique prefix) is stored; it means what is open there now.

    With `key`, the same order again has no second effect. Raises: SessionNotFound, BadInput for an empty key.
    """
    known, summary = await _found(sessions, id)
    delivery = Delivery(
        session_id=known,
        message=UserMessage(keyed_id(kind, known, key), ()),
        target="next-step",
        wake=False,
        accepted_at=sessions.clock.now_ms(),
        kind=kind,
        log_length=summary.events,
    )
    return await _post(sessions, delivery, summary)


async def _found(sessions: Sessions, id: str) -> tuple[SessionId, SessionSummary]:
    known = await sessions.store.resolve(id)
    summary = await sessions.store.summary(known)
    if summary is None:
        raise SessionNotFound(f"session {known!r} is gone; list the sessions to see which are stored")
    return known, summary


def keyed_id(kind: str, session: SessionId, key: str | None) -> MessageId:
    """The id of what is sent to the session: the same for the same key. Raises: BadInput for a key that is none."""
    if key is None:
        return new_message_id()
    if not is_text(key):
        raise BadInput(f"the key {key!r} is not text; give one without broken characters")
    if not key.strip():
        raise BadInput("the key is empty; give one that says which sending it is, or none")
    return MessageId(derived_id(kind, session, key))


async def _check_continuable(sessions: Sessions, id: SessionId) -> None:
    stored = await sessions.store.read(id)
    made = descriptor(stored.header, stored.events)
    if made is None or made.mode != "continuable":
        raise BadInput(f"session {id!r} was a single run and takes no messages; send to its root or to another child")


async def _post(sessions: Sessions, delivery: Delivery, summary: SessionSummary) -> Posted:
    try:
        outcome = await sessions.post(delivery).wait()
    except IdConflict as error:
        raise IdConflict(
            f"the key was used before in session {delivery.session_id!r}, with another text; use a new key"
        ) from error
    if delivery.id in outcome.undelivered:
        raise SessionNotFound(f"session {delivery.session_id!r} was deleted meanwhile; nothing was sent")
    return Posted(
        session_id=delivery.session_id,
        root=summary.root,
        message_id=delivery.id,
        driver=await sessions.store.ring(summary.root),
        is_pending=delivery.id in outcome.orders,
        has_open_turn=summary.open_turn is not None,
    )
