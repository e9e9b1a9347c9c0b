"""JSON-RPC 2.0 over a pair of byte streams, both directions: one frame a line, whatever the other side sends.

Nothing that arrives ends the peer, unless it is told to miss nothing: what cannot be read gets a protocol error, what
nobody asked for is passed over. It knows no method of any protocol. Frames leave in the order in which they were given;
giving one never blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, assert_never

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct

from retinue.base.frames import (
    CANCELLED,
    INTERNAL,
    INVALID_REQUEST,
    NO_ID,
    Failure,
    Id,
    NoFrame,
    Notification,
    Request,
    Response,
    parse_frame,
    unreadable_answer,
)
from retinue.base.json import JSON, encode
from retinue.base.lines import MAX_LINE_BYTES, Lines, Pipe
from retinue.base.outbox import Outbox

__all__ = ["Answer", "Handler", "OnCancel", "Peer"]

_LAST_S = 1.0
"""How long answers that are ready may take to leave after the other side's last word."""

_CANCEL = "$/cancel_request"
_log = logging.getLogger("retinue")

Handler: TypeAlias = Callable[[str, Raw, bool], Awaitable[JSON]]
"""Called with the method, its parameters as they came and whether an answer is expected. What it returns is the
result; it raises Failure. Handlers begin in the order in which their frames came."""

OnCancel: TypeAlias = Callable[[str, Raw], None]
"""Called with method and parameters of a request that the other side has cancelled, when its handler has ended."""


class _CancelParams(Struct, rename="camel"):
    request_id: Id


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
        self._outbox = Outbox(pipe, max_line_bytes, self._gone)
        self._asked: dict[int, Answer] = {}
        self._answering: dict[Id, anyio.CancelScope] = {}
        self._last_id = 0
        self.closed = self._outbox.closed
        """Nobody is there any more: nothing comes, and what is sent goes nowhere."""

    @property
    def fault(self) -> str:
        """What the other side did so that this one ended the connection; empty if it did not."""
        return self._outbox.fault

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
        await self._outbox.room()

    async def flushed(self) -> None:
        """Everything given so far was handed to the stream, or nobody is there any more."""
        await self._outbox.flushed()

    def _give(self, frame: Mapping[str, object]) -> None:
        if not self.closed.is_set():
            self._outbox.give(encode(frame) + b"\n")

    def _fail(self, id: Raw, failure: Failure) -> None:
        error: dict[str, object] = {"code": failure.code, "message": failure.message}
        if failure.data is not None:
            error["data"] = failure.data
        self._give({"jsonrpc": "2.0", "id": id, "error": error})

    # Receiving

    async def run(self) -> None:
        """The connection has ended: the other side closed it, or reads no more. Handlers still at work are cancelled.

        Cancelling ends it as well.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._outbox.run)
            group.start_soon(self._read, group)
            await self.closed.wait()
            group.cancel_scope.cancel()

    def _gone(self) -> None:
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
                        self._outbox.give_up(f"sent a line longer than {self._max_line_bytes} bytes")
                        return
                    if line is None:
                        too_long = f"a line is longer than {self._max_line_bytes} bytes"
                        self._fail(NO_ID, Failure(INVALID_REQUEST, too_long))
                    elif line.strip():
                        self._take(line, group)
            with anyio.move_on_after(_LAST_S):  # whoever has said all may still read what is answered at once
                await anyio.lowlevel.checkpoint()
                await self.flushed()
        except OSError:
            pass
        finally:
            self._outbox.close()

    def _take(self, line: bytes, group: TaskGroup) -> None:
        said = parse_frame(line)
        match said:
            case Notification() as notification:
                group.start_soon(self._notified, notification)
            case Request() as request:
                group.start_soon(self._answer, request)
            case Response(id=id, result=result):
                self._answered(id, result)
            case NoFrame(is_request=True, raw_id=raw_id, failure=failure):
                self._fail(raw_id, failure)
            case NoFrame(id=id, failure=failure):
                if not self._answered(id, unreadable_answer()):
                    self._fail(NO_ID, failure)
            case _:
                assert_never(said)

    def _answered(self, id: Id, result: Raw | Failure) -> bool:
        """False if nobody waits for an answer with that id."""
        answer = self._asked.pop(id, None) if isinstance(id, int) else None
        if answer is None:
            return False
        if isinstance(result, Failure):
            answer.failure = result
        else:
            answer.value = result
        answer.came.set()
        return True

    async def _notified(self, notification: Notification) -> None:
        if notification.method == _CANCEL:
            self._cancel(notification.params)
            return
        try:
            await self._handler(notification.method, notification.params, False)
        except Failure as failure:
            _log.debug("notification %s: %s", notification.method, failure)
        except Exception:
            _log.exception("notification %s failed", notification.method)

    def _cancel(self, params: Raw) -> None:
        try:
            asked = msgspec.json.decode(params, type=_CancelParams)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        scope = self._answering.get(asked.request_id)
        if scope is not None:
            scope.cancel()

    async def _answer(self, request: Request) -> None:
        with anyio.CancelScope() as scope:
            self._answering[request.id] = scope
            try:
                result = await self._handler(request.method, request.params, True)
                self._give({"jsonrpc": "2.0", "id": request.raw_id, "result": result})
                return
            except Failure as failure:
                self._fail(request.raw_id, failure)
                return
            except Exception as error:
                _log.exception("request %s failed", request.method)
                self._fail(request.raw_id, Failure(INTERNAL, f"{request.method} failed: {error}"))
                return
            finally:
                if self._answering.get(request.id) is scope:
                    del self._answering[request.id]
        self._on_cancel(request.method, request.params)
        self._fail(request.raw_id, Failure(CANCELLED, "the request was cancelled"))
