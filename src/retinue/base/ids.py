"""Ids: random ones for what begins here, derived ones for what must be the same after a crash."""

from __future__ import annotations

from hashlib import sha256
from typing import NewType
from uuid import uuid4

__all__ = ["MessageId", "SessionId", "derived_id", "is_text", "new_message_id", "new_session_id"]

SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)


def new_session_id() -> SessionId:
    """A fresh id for a root session."""
    return SessionId(f"session-{uuid4()}")


def new_message_id() -> MessageId:
    """A fresh id for a message whose sender brings no key."""
    return MessageId(f"msg-{uuid4().hex}")


def is_text(given: str) -> bool:
    """It can be written down: bytes of a command line that are not UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in given)


def derived_id(kind: str, *key: str | int) -> str:
    """`kind-` and 24 hex digits that depend on kind and key alone: the same effect gets the same id after any crash.

    Parts are length-prefixed, so no two keys share an id by concatenation. 96 bits make an accidental clash within one
    home negligible, and the store refuses a clash with other content. Source: decision 0001.
    """
    digest = sha256(kind.encode())
    for part in key:
        data = str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return f"{kind}-{digest.hexdigest()[:24]}"
