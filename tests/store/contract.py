"""The contract of a store, as tests: every sentence of `session/store.py` and `session/rows.py` that can be observed.

A store passes by a class that inherits all five parts and has a `home` fixture, as in `test_contract.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from retinue.base.ids import MessageId, SessionId
from retinue.model.content import Source, Text, Usage, UserMessage
from retinue.session.events import Event, Payload, SessionHeader
from retinue.session.rows import Append, Batch, Committed, Create, Delivery, Insert, Op, Target
from retinue.session.store import Lease, Outcome, SessionStore

__all__ = ["Tree", "append", "commit", "header", "insert", "message", "only", "sent"]


def commit(store: SessionStore, *batches: Batch) -> list[Outcome]:
    """The outcomes of the batches, applied as one group."""
    outcomes: list[Sequence[Outcome]] = []
    store.begin(batches, outcomes.append)
    assert len(outcomes) == 1, "this store gives its outcomes later; the suite has to wait for them"
    return list(outcomes[0])


def only(outcomes: list[Outcome]) -> Committed:
    """The one outcome, which is a success."""
    (outcome,) = outcomes
    assert isinstance(outcome, Committed), outcome
    return outcome


def header(id: str, parent: str | None = None, *, created_at: int = 1000, delegated: bool = True) -> SessionHeader:
    return SessionHeader(
        id=SessionId(id),
        created_at=created_at,
        cwd="/work",
        parent_session=None if parent is None else SessionId(parent),
        origin="subagent" if parent is not None and delegated else None,
        delegation_depth=0 if parent is None else 1,
    )


def append(id: str, first: int, *payloads: Payload, time: int = 2000) -> Append:
    return Append(SessionId(id), tuple(Event(first + i, time + i, data) for i, data in enumerate(payloads)))


def message(id: str, text: str = "Hello.", kind: str = "user") -> UserMessage:
    return UserMessage(MessageId(id), (Text(text),), Source(kind))


def sent(
    session: str,
    id: str,
    text: str = "Hello.",
    *,
    target: Target = "next-turn",
    wake: bool = True,
    usage: Usage | None = None,
) -> Delivery:
    return Delivery(
        session_id=SessionId(session),
        message=message(id, text),
        target=target,
        wake=wake,
        accepted_at=3000,
        usage=usage,
    )


def insert(session: str, id: str, text: str = "Hello.", *, prepend: bool = False) -> Insert:
    return Insert(sent(session, id, text), prepend)


class Tree:
    """A tree that a store holds, and batches that carry its fence."""

    def __init__(self, store: SessionStore, lease: Lease) -> None:
        self.store = store
        self.lease = lease
        self.root = lease.root

    @classmethod
    async def planted(cls, store: SessionStore, root: str = "root", *children: str) -> Tree:
        """A new tree with a root and its children, all without events."""
        tree = cls(store, await store.acquire(SessionId(root)))
        tree.commit(tree.create(root), *(tree.create(child, root) for child in children))
        return tree

    def create(self, id: str, parent: str | None = None, *, created_at: int = 1000) -> Create:
        return Create(header(id, parent, created_at=created_at), self.root)

    def batch(self, *ops: Op) -> Batch:
        return Batch(ops, ((self.root, self.lease.fence),))

    def commit(self, *ops: Op) -> Committed:
        return only(commit(self.store, self.batch(*ops)))

    def refused(self, *ops: Op) -> Exception:
        (outcome,) = commit(self.store, self.batch(*ops))
        assert isinstance(outcome, Exception)
        return outcome
