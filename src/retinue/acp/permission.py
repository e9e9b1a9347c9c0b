"""Questions of one tree, put to the client: `session/request_permission`, whoever of the tree asks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from msgspec import Raw

from retinue.acp.params import PermissionAnswer
from retinue.acp.tree import TreeView
from retinue.acp.updates import PermissionOption
from retinue.base.frames import Failure
from retinue.base.jsonrpc import Peer
from retinue.errors import RetinueError, ToolFailure
from retinue.host.approvals import Answer, Approvals, Question
from retinue.plugins.confined import open_regular

__all__ = ["ClientAnswers", "Start"]

_log = logging.getLogger("retinue")

Start = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that somebody owns."""

_OPTIONS = (
    PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Allow from now on", kind="allow_always"),
    PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)
_ANSWERS = {"allow": Answer(verb="allow"), "always": Answer(verb="allow", always=True)}
_SHOWN_BYTES = 200_000
_REJECTED = Answer(verb="reject")


class ClientAnswers:
    """An Answerer. An answer that nobody offered, or that cannot be read, is a rejection. Source: behaviour AC-12."""

    def __init__(self, approvals: Approvals, view: TreeView, peer: Peer, start: Start) -> None:
        self._approvals = approvals
        self._view = view
        self._peer = peer
        self._start = start
        self._open: dict[str, anyio.CancelScope] = {}

    def asked(self, question: Question) -> None:
        """See Answerer."""
        scope = self._open[question.id] = anyio.CancelScope()
        self._start(partial(self._ask, question, scope))

    def withdrawn(self, question: Question) -> None:
        """See Answerer. The client is told."""
        scope = self._open.get(question.id)
        if scope is not None:
            scope.cancel()

    def leave(self) -> None:
        """What is open is not asked here any more; another answerer has heard of it."""
        for scope in self._open.values():
            scope.cancel()

    async def _ask(self, question: Question, scope: anyio.CancelScope) -> None:
        with scope:
            session, call = self._view.question(question, before=await self._replaced(question))
            params = {"sessionId": session, "toolCall": call, "options": _OPTIONS}
            try:
                answer = _read(await self._peer.request("session/request_permission", params))
            except Failure:
                answer = _REJECTED
            if not self._peer.closed.is_set():  # else nobody has answered, and what asks is about to end
                try:
                    self._approvals.answer(question.id, answer)
                except RetinueError as error:
                    _log.warning("an answer came too late: %s", error)
        if self._open.get(question.id) is scope:  # it may have been asked again
            del self._open[question.id]

    async def _replaced(self, question: Question) -> str | None:
        """The text of the file that the call would replace as a whole, if there is one that can be shown."""
        match question.tool, question.arguments:
            case "write", {"path": str(path)} if path:
                return await to_thread.run_sync(_text_of, self._view.folder(question.agent), path)
            case _:
                return None


def _text_of(folder: Path, path: str) -> str | None:
    try:
        with open_regular((folder / os.path.expanduser(path)).resolve()) as stream:
            data = stream.read(_SHOWN_BYTES + 1)
        return data.decode() if len(data) <= _SHOWN_BYTES else None
    except (OSError, ValueError, RuntimeError, ToolFailure):
        return None


def _read(result: Raw) -> Answer:
    try:
        outcome = msgspec.json.decode(result, type=PermissionAnswer).outcome
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _REJECTED
    return _ANSWERS.get(outcome.option_id or "", _REJECTED) if outcome.outcome == "selected" else _REJECTED
