"""What headless work writes on stdout: the answer alone, one result object, or one object a line as things happen."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from retinue.agent.signals import ChunkArrived, ChunksWithdrawn
from retinue.base.ids import SessionId
from retinue.base.json import JSON, JSONObject, encode
from retinue.cli.headless.pen import Pen
from retinue.cli.main import closed
from retinue.errors import error_record
from retinue.host.host import Host
from retinue.model.chunks import ReasoningDelta, TextDelta
from retinue.session.events import Event, event_object
from retinue.session.session import Session
from retinue.subagent.lifecycle import ExternalCall

__all__ = ["Output"]


class Output:
    """Stdout of one run. `result` is written once and last, whatever happens."""

    def __init__(self, form: Literal["text", "json", "jsonl"], broken: Callable[[], object]) -> None:
        """`broken` is called, from another thread, when nobody reads stdout any more."""
        self.form = form
        self._pen = Pen(sys.stdout, broken)
        self._is_over = False

    @contextmanager
    def following(self, host: Host, root: Callable[[], SessionId | None], *, stream: bool) -> Generator[None]:
        """With `jsonl`, every event of the tree is written once it is durable, with `stream` live text as well.

        Calls that a program makes which works as a child are no events, and are written as they come.
        """
        if self.form != "jsonl":
            yield
            return

        def event(session: Session, events: Sequence[Event]) -> None:
            if session.root == root():
                for each in events:
                    self._event(session.id, each)

        def external(signal: ExternalCall) -> None:
            if signal.agent.session.root == root():
                call: JSONObject = {"turn": signal.turn, "step": signal.step, "id": signal.id}
                call |= {"title": signal.title, "kind": signal.kind, "status": signal.status}
                self._object("external-call", signal.agent.id, time.time(), call=call)

        def chunk(signal: ChunkArrived) -> None:
            if isinstance(signal.chunk, TextDelta | ReasoningDelta):
                kind = "text" if isinstance(signal.chunk, TextDelta) else "reasoning"
                self._chunk(signal, {"kind": kind, "text": signal.chunk.text})

        def withdrawn(signal: ChunksWithdrawn) -> None:
            code, message = error_record(signal.error)
            why: JSONObject = {"code": code, "message": message}
            self._chunk(signal, {"kind": "withdrawn", "error": why, "retry_in_s": signal.delay_s})

        with host.sessions.observe(event, durable=True), host.bus.on(ExternalCall, external):
            if not stream:
                yield
                return
            with host.bus.on(ChunkArrived, chunk), host.bus.on(ChunksWithdrawn, withdrawn):
                yield

    def _event(self, id: SessionId, event: Event) -> None:
        shown = event_object(event)
        shown.pop("time")
        self._object("event", id, event.time / 1000, event=shown)

    def _chunk(self, signal: ChunkArrived | ChunksWithdrawn, what: JSONObject) -> None:
        what = {**what, "turn": signal.turn, "step": signal.step, "attempt": signal.attempt}
        self._object("chunk", signal.agent.id, time.time(), chunk=what)

    def _object(self, type: str, id: SessionId | None, time_s: float, **fields: JSON) -> None:
        if not self._is_over:
            self._pen.write(_line({"type": type, "session_id": id, "time": time_s, **fields}))

    def result(self, result: JSONObject) -> None:
        """The result is on its way; nothing is written after it. Later calls change nothing."""
        if self._is_over:
            return
        self._is_over = True
        if self.form == "text":
            text = result.get("output")
            if isinstance(text, str) and text:
                self._pen.line(text)
            return
        self._pen.write(
            _line({"type": "result", "session_id": result.get("session_id"), "time": time.time(), **result})
        )

    async def finish(self) -> OSError | None:
        """All is written; or why it is not, also because the caller had closed stdout."""
        await self._pen.finish()
        return self._close()

    def flush(self, timeout_s: float) -> None:
        """What can be written within `timeout_s` is. Blocks."""
        self._pen.flush(timeout_s)
        self._close()

    def _close(self) -> OSError | None:
        if self._pen.failure is not None:  # so that the interpreter does not try again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BrokenPipeError() if "stdout" in closed else self._pen.failure


def _line(value: JSONObject) -> bytes:
    try:
        return encode(value) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: JSON can say it, UTF-8 cannot
        return json.dumps(value).encode() + b"\n"
