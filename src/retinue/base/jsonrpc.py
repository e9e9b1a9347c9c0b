"""JSON-RPC 2.0 over a pair of byte streams, both directions: one frame a line, whatever the other side sends.

Nothing that arrives ends the peer, unless it is told to miss nothing: what cannot be read gets a protocol error, what
nobody asked for is passed over. It knows no method of any protocol. Frames leave in the order in which they were given;
giving one never blocks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.base.json import JSON, encode
from retinue.base.lines import Lines

__all__ = [
    "AUTH_REQUIRED",
    "CANCELLED",
    "INTERNAL",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_LINE_BYTES",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "UNKNOWN_METHOD",
    "Answer",
    "Failure",
    "Handler",
    "OnCancel",
    "Peer",
    "Pipe",
]

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
"""Source: JSON-RPC 2.0, section 5.1."""
AUTH_REQUIRED, RESOURCE_NOT_FOUND, CANCELLED = -32000, -32002, -32800
"""Source: `ErrorCode` of the Agent Client Protocol, which is spoken over this."""

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Prompts carry images, but memory has an end."""

_BACKLOG_LINES = 2
"""Whoever leaves more unread than so many of the longest lines has gone."""

_LITTLE = 1 / 64
"""So much of the longest line, unread, keeps nobody from saying more."""

_LAST_S = 1.0
"""How long answers that are ready may take to leave after the other side's last word."""

_CANCEL = "$/cancel_request"
_NO_ID = _NO_ERROR = Raw(b"null")
_log = logging.getLogger("retinue")


class Pipe(Protocol):
    """Two streams of bytes. Its methods are never called twice at the same time each."""

    async def receive(self) -> bytes:
        """Some bytes; none at the end of the stream, and ever after."""
        ...

    async def send(self, data: bytes) -> None:
        """The bytes are on their way. Raises: OSError if nobody reads any more."""
        ...


class Failure(Exception):
    """What a request failed with, on the wire and off it."""

    def __init__(self, code: int, message: str, data: JSON = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


Handler: TypeAlias = Callable[[str, Raw, bool], Awaitable[JSON]]
"""Called with the method, its parameters as they came and whether an answer is expected. What it returns is the
result; it raises Failure. Handlers begin in the order in which their frames came."""

OnCancel: TypeAlias = Callable[[str, Raw], None]
"""Called with method and parameters of a request that the other side has cancelled, when its handler has ended."""


class _Frame(Struct):
    jsonrpc: Literal["2.0"]
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Envelope(Struct):
    """What tells who waits for a frame that is none."""

    id: Raw = _NO_ID
    method: JSON = None


class _Error(Struct):
    code: int
    message: str
    data: JSON = None


_frame = msgspec.json.Decoder(_Frame)
_envelope = msgspec.json.Decoder(_Envelope)
_error = msgspec.json.Decoder(_Error)
_id = msgspec.json.Decoder(str | int | None)


class Answer:
    """Where the answer to a request of ours will be."""

    __slots__ = ("came", "failure", "number", "value")

    def __init__(self, number: int) -> None:
        self.number = number
        self.came = anyio.Event()
        self.value = Raw(b"null")
        self.failure: Failure | None = None

    async def result(self) -> Raw:
        """What the other side answered. Raises: Failure, also when nobody is there any more."""
        await self.came.wait()
        if self.failure is not None:
            raise self.failure
        return self.value


class Peer:
    """One side of a connection. `run` drives it; the rest may be called from any task meanwhile."""

    def __init__(
        self,
        pipe: Pipe,
        handler: Handler,
        *,
        on_cancel: OnCancel = lambda _method, _params: None,
        max_line_bytes: int = MAX_LINE_BYTES,
        skips_long_lines: bool = True,
    ) -> None:
        """A line that is too long is passed over and answered with an error; without `skips_long_lines` it ends the
        connection, for whoever must not miss what it held.
        """
        self._pipe = pipe
        self._handler = handler
        self._on_cancel = on_cancel
        self._max_line_bytes = max_line_bytes
        self._skips_long_lines = skips_long_lines
        self._outbox: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._written = anyio.Event()
        self._more = anyio.Event()
        self._asked: dict[int, Answer] = {}
        self._answering: dict[str | int | None, anyio.CancelScope] = {}
        self._last_id = 0
        self.closed = anyio.Event()
        """Nobody is there any more: nothing comes, and what is sent goes nowhere."""
        self.fault = ""
        """What the other side did so that this one ended the connection; empty if it did not."""

    # Sending

    def notify(self, method: str, params: Mapping[str, object]) -> None:
        """The notification is on its way, behind everything given before."""
        self._give({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, object]) -> Raw:
        """What the other side answers. Cancelling tells it. Raises: Failure, also when nobody is there any more."""
        answer = self.begin(method, params)
        try:
            return await answer.result()
        except anyio.get_cancelled_exc_class():
            self._asked.pop(answer.number, None)
            self.notify(_CANCEL, {"requestId": answer.number})
            raise

    def begin(self, method: str, params: Mapping[str, object]) -> Answer:
        """The request is on its way, behind everything given before; nobody needs to wait for its answer."""
        self._last_id = number = self._last_id + 1
        answer = Answer(number)
        if self.closed.is_set():
            answer.failure = Failure(INTERNAL, "the connection is closed")
            answer.came.set()
            return answer
        self._asked[number] = answer
        self._give({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return answer

    async def room(self) -> None:
        """The other side has little left to read, or nobody is there any more. For whoever has much to say at once."""
        while self._backlog_bytes > self._max_line_bytes * _LITTLE and not self.closed.is_set():
            await self._written.wait()

    async def flushed(self) -> None:
        """Everything given so far was handed to the stream, or nobody is there any more."""
        while (self._outbox or self._backlog_bytes) and not self.closed.is_set():
            await self._written.wait()

    def _give(self, frame: Mapping[str, object]) -> None:
        if self.closed.is_set():
            return
        line = encode(frame) + b"\n"
        self._outbox.append(line)
        self._backlog_bytes += len(line)
        self._more.set()
        if self._backlog_bytes > self._max_line_bytes * _BACKLOG_LINES:
            self._give_up(f"left {self._backlog_bytes} bytes unread")

    def _fail(self, id: Raw, failure: Failure) -> None:
        error: dict[str, object] = {"code": failure.code, "message": failure.message}
        if failure.data is not None:
            error["data"] = failure.data
        self._give({"jsonrpc": "2.0", "id": id, "error": error})

    async def _write(self) -> None:
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._outbox:
                lines = [self._outbox.popleft()]
                size = len(lines[0])
                while self._outbox and size < 65536:
                    lines.append(self._outbox.popleft())
                    size += len(lines[-1])
                try:
                    await self._pipe.send(b"".join(lines))
                except OSError:
                    self._close()
                    return
                self._backlog_bytes -= size
            self._written.set()
            self._written = anyio.Event()

    # Receiving

    async def run(self) -> None:
        """The connection has ended: the other side closed it, or reads no more. Handlers still at work are cancelled.

        Cancelling ends it as well.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._write)
            group.start_soon(self._read, group)
            await self.closed.wait()
            group.cancel_scope.cancel()

    def _give_up(self, fault: str) -> None:
        _log.warning("the other side %s; its connection is given up", fault)
        self.fault = fault
        self._close()

    def _close(self) -> None:
        self.closed.set()
        self._written.set()
        why = f"the other side {self.fault}" if self.fault else "the connection was closed before an answer came"
        for answer in self._asked.values():
            answer.failure = Failure(INTERNAL, why)
            answer.came.set()

    async def _read(self, group: TaskGroup) -> None:
        try:
            lines = Lines(self._max_line_bytes)
            while data := await self._pipe.receive():
                for line in lines.feed(data):
                    if line is None and not self._skips_long_lines:
                        self._give_up(f"sent a line longer than {self._max_line_bytes} bytes")
                        return
                    if line is None:
                        too_long = f"a line is longer than {self._max_line_bytes} bytes"
                        self._fail(_NO_ID, Failure(INVALID_REQUEST, too_long))
                    elif line.strip():
                        self._take(line, group)
            with anyio.move_on_after(_LAST_S):  # whoever has said all may still read what is answered at once
                await anyio.lowlevel.checkpoint()
                await self.flushed()
        except OSError:
            pass
        finally:
            self._close()

    def _take(self, line: bytes, group: TaskGroup) -> None:
        try:
            frame = _frame.decode(line)
            id = None if frame.id is UNSET else _id.decode(frame.id)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._refuse(line, _unreadable(line, error))
            return
        if frame.method is not UNSET:
            if frame.id is UNSET:
                group.start_soon(self._notified, frame)
            else:
                group.start_soon(self._answer, frame.id, id, frame)
            return
        if frame.error is not UNSET and bytes(frame.error) == b"null":
            frame.error = UNSET  # some peers write it beside each result
        if frame.id is UNSET or (frame.result is UNSET) == (frame.error is UNSET):
            self._refuse(line, Failure(INVALID_REQUEST, "a frame is a request, a notification or a response"))
        else:
            self._answered(id, frame)

    def _refuse(self, line: bytes, failure: Failure) -> None:
        """The line is no frame. Whoever waits for it is told so, here or on the other side."""
        try:
            envelope = _envelope.decode(line)
            id = _id.decode(envelope.id)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            envelope, id = _Envelope(), None
        if envelope.method is not None:
            self._fail(envelope.id, failure)
        elif not self._answered(id, None):
            self._fail(_NO_ID, failure)

    def _answered(self, id: str | int | None, frame: _Frame | None) -> bool:
        """False if nobody waits for an answer with that id; without a frame it is one that cannot be read."""
        answer = self._asked.pop(id, None) if isinstance(id, int) else None
        if answer is None:
            return False
        if frame is not None and frame.result is not UNSET:
            answer.value = frame.result
        else:
            answer.failure = _failure(_NO_ERROR if frame is None or frame.error is UNSET else frame.error)
        answer.came.set()
        return True

    async def _notified(self, frame: _Frame) -> None:
        assert frame.method is not UNSET
        if frame.method == _CANCEL:
            self._cancel(frame.params)
            return
        try:
            await self._handler(frame.method, frame.params, False)
        except Failure as failure:
            _log.debug("notification %s: %s", frame.method, failure)
        except Exception:
            _log.exception("notification %s failed", frame.method)

    def _cancel(self, params: Raw) -> None:
        try:
            asked = msgspec.json.decode(params, type=_CancelParams)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        scope = self._answering.get(asked.request_id)
        if scope is not None:
            scope.cancel()

    async def _answer(self, id: Raw, key: str | int | None, frame: _Frame) -> None:
        assert frame.method is not UNSET
        with anyio.CancelScope() as scope:
            self._answering[key] = scope
            try:
                result = await self._handler(frame.method, frame.params, True)
                self._give({"jsonrpc": "2.0", "id": id, "result": result})
                return
            except Failure as failure:
                self._fail(id, failure)
                return
            except Exception as error:
                _log.exception("request %s failed", frame.method)
                self._fail(id, Failure(INTERNAL, f"{frame.method} failed: {error}"))
                return
            finally:
                if self._answering.get(key) is scope:
                    del self._answering[key]
        self._on_cancel(frame.method, frame.params)
        self._fail(id, Failure(CANCELLED, "the request was cancelled"))


class _CancelParams(Struct, rename="camel"):
    request_id: str | int | None


def _failure(error: Raw) -> Failure:
    """What the other side says went wrong."""
    try:
        told = _error.decode(error)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Failure(INTERNAL, "the other side answered in a way that cannot be read")
    return Failure(told.code, told.message, told.data)


def _unreadable(line: bytes, error: Exception) -> Failure:
    """A parse error for what is no JSON, else an invalid request."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Failure(PARSE_ERROR, f"a line is no JSON: {error}")
    if isinstance(value, list):
        return Failure(INVALID_REQUEST, "batches are not part of this protocol; send one frame a line")
    return Failure(INVALID_REQUEST, f"a frame is a JSON-RPC 2.0 object: {error}")
