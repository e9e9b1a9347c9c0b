"""JSON-RPC 2.0 frames, one a line: what a line says, and what is wrong with one that is no frame.

It knows no connection and no method: who is told of a failure is the peer's business.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.base.json import JSON

__all__ = [
    "AUTH_REQUIRED",
    "CANCELLED",
    "INTERNAL",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "NO_ID",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "UNKNOWN_METHOD",
    "Failure",
    "Id",
    "NoFrame",
    "Notification",
    "Request",
    "Response",
    "parse_frame",
    "unreadable_answer",
]

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
"""Source: JSON-RPC 2.0, section 5.1."""
AUTH_REQUIRED, RESOURCE_NOT_FOUND, CANCELLED = -32000, -32002, -32800
"""Source: `ErrorCode` of the Agent Client Protocol, which is spoken over this."""

NO_ID = Raw(b"null")
"""The id of an answer to what had none that could be read."""

Id: TypeAlias = str | int | None
"""An id, to find by it who waits. On the wire it is repeated as it came, since numbers have more than one spelling."""

_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class Failure(Exception):
    """What a request failed with, on the wire and off it."""

    def __init__(self, code: int, message: str, data: JSON = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Notification(Struct, frozen=True):
    """What expects no answer."""

    method: str
    params: Raw


class Request(Struct, frozen=True):
    """What expects an answer."""

    method: str
    params: Raw
    id: Id
    raw_id: Raw
    """The id as it came."""


class Response(Struct, frozen=True):
    """What a request of ours came to."""

    id: Id
    result: Raw | Failure


class NoFrame(Struct, frozen=True, kw_only=True):
    """A line that is no frame, and who waits for it, as far as that can be told."""

    failure: Failure
    id: Id = None
    raw_id: Raw = NO_ID
    is_request: bool = False
    """It names a method."""


def parse_frame(line: bytes) -> Notification | Request | Response | NoFrame:
    """What the line says."""
    try:
        frame = _frame.decode(line)
        id = None if frame.id is UNSET else _id.decode(frame.id)
    except _ERRORS as error:
        return _no_frame(line, _unreadable(line, error))
    if frame.method is not UNSET:
        if frame.id is UNSET:
            return Notification(frame.method, frame.params)
        return Request(frame.method, frame.params, id, frame.id)
    error = UNSET if frame.error == _NULL else frame.error  # some peers write it beside each result
    if frame.id is not UNSET:
        if frame.result is not UNSET and error is UNSET:
            return Response(id, frame.result)
        if frame.result is UNSET and error is not UNSET:
            return Response(id, _told(error))
    return _no_frame(line, Failure(INVALID_REQUEST, "a frame is a request, a notification or a response"))


def unreadable_answer() -> Failure:
    """What a request of ours failed with whose answer is no frame, or names no error that could be read."""
    return Failure(INTERNAL, "the other side answered in a way that cannot be read")


class _Frame(Struct):
    jsonrpc: Literal["2.0"]
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Envelope(Struct):
    """What tells who waits for a frame that is none."""

    id: Raw = NO_ID
    method: JSON = None


class _Error(Struct):
    code: int
    message: str
    data: JSON = None


_frame = msgspec.json.Decoder(_Frame)
_envelope = msgspec.json.Decoder(_Envelope)
_error = msgspec.json.Decoder(_Error)
_id = msgspec.json.Decoder(str | int | None)
_NULL = Raw(b"null")


def _no_frame(line: bytes, failure: Failure) -> NoFrame:
    try:
        envelope = _envelope.decode(line)
        id = _id.decode(envelope.id)
    except _ERRORS:
        return NoFrame(failure=failure)
    return NoFrame(failure=failure, id=id, raw_id=envelope.id, is_request=envelope.method is not None)


def _told(error: Raw) -> Failure:
    """What the other side says went wrong."""
    try:
        told = _error.decode(error)
    except _ERRORS:
        return unreadable_answer()
    return Failure(told.code, told.message, told.data)


def _unreadable(line: bytes, error: Exception) -> Failure:
    """A parse error for what is no JSON, else an invalid request."""
    try:
        value = msgspec.json.decode(line)
    except _ERRORS:
        return Failure(PARSE_ERROR, f"a line is no JSON: {error}")
    if isinstance(value, list):
        return Failure(INVALID_REQUEST, "batches are not part of this protocol; send one frame a line")
    return Failure(INVALID_REQUEST, f"a frame is a JSON-RPC 2.0 object: {error}")
