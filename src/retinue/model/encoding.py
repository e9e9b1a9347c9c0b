"""What makes the bytes of a request, apart from whoever sends them: so that a body can be made again and compared.

A client with an `encoder` attribute has its requests recorded: which encoder made them in `request/context`, and a
digest of each body that left. A client without one works all the same; its requests cannot be shown again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

from msgspec import Struct, field

from retinue.base.json import JSON
from retinue.model.client import Body, ModelRequest, Transcript

__all__ = ["Encoder", "Encoding", "RunningDigest", "SentBody", "encoder_of", "sent_of"]

_DIGITS = 20
"""Of the 64 that SHA-256 has: 80 bits tell apart all that one home will ever send."""


class Encoding(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Which encoder made a body, in which version, and what it was told beyond the request."""

    name: str
    version: int
    options: dict[str, JSON] = field(default_factory=lambda: dict[str, JSON]())


class SentBody(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What left for the model: the first 20 hexadecimal digits of the body's SHA-256, and its size in bytes."""

    digest: str
    size: int


class Encoder(Protocol):
    """Makes bodies and does nothing else: no connection, no key, no clock."""

    def encoding(self, model: str) -> Encoding:
        """Its name, version and options for that model: equal ones make equal bodies of equal requests."""
        ...

    def transcript(self) -> Transcript:
        """A new empty conversation in this wire form."""
        ...

    def encode(self, request: ModelRequest) -> Body:
        """The body to send: a pure function of the request."""
        ...

    def sent(self, request: ModelRequest, body: Body) -> SentBody:
        """The record of `body`, which `encode` made of `request`. Costs what is new since the last one."""
        ...


def encoder_of(client: object) -> Encoder | None:
    """The encoder of a model client, if it has one."""
    found: Encoder | None = getattr(client, "encoder", None)
    return found


def sent_of(body: Body) -> SentBody:
    """The record of any body. Costs the whole of it."""
    return _record(sha256(b"".join(body)).hexdigest(), body)


class RunningDigest:
    """The digest of a body whose beginning only grows from request to request."""

    __slots__ = ("_hash", "_head", "_length")

    def __init__(self) -> None:
        self._hash = sha256()
        self._head = b""
        self._length = 0

    def of(self, body: Body) -> SentBody:
        """The record of `body`, whose second piece begins with what it was the last time if the first piece is equal.

        Another first piece costs the whole once.
        """
        head, grown, *rest = body
        if head != self._head:
            self._hash, self._head, self._length = sha256(head), head, 0
        self._hash.update(memoryview(grown)[self._length :])
        self._length = len(grown)
        whole = self._hash.copy()
        for piece in rest:
            whole.update(piece)
        return _record(whole.hexdigest(), body)


def _record(digest: str, body: Body) -> SentBody:
    return SentBody(digest[:_DIGITS], sum(map(len, body)))
