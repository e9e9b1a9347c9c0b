"""One piece of work on a root agent: live text while it goes on, one result when nothing is owed any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.signals import ChunkArrived, ChunksWithdrawn
from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.compose.tree import AgentLine, TreeAccount
from retinue.errors import error_record
from retinue.model.chunks import TextDelta
from retinue.model.content import Usage
from retinue.session.events import ErrorRecord, Event, TurnEnd
from retinue.session.folds import total_usage
from retinue.session.session import Session
from retinue.subagent.outcome import Ending, outcome

__all__ = ["Result", "Run", "Withdrawn"]


class Withdrawn(str):
    """Stands in live text where what came before, since the last reply, counts for nothing: the request is repeated."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to."""

    session_id: SessionId
    outcome: Ending
    output: str
    """The last visible text of the root in this run."""
    usage: Usage
    """Of the whole tree, in this run and before."""
    agents: tuple[AgentLine, ...]
    abandoned: tuple[str, ...] = ()
    """Ids of agents and tasks that were still at work."""
    error: ErrorRecord | None = None

    @property
    def text(self) -> str:
        """Same as `output`."""
        return self.output

    def as_object(self) -> JSONObject:
        """The result object of the command line."""
        return {
            "type": "result",
            "session_id": self.session_id,
            "outcome": self.outcome,
            "output": self.output,
            "usage": usage_object(self.usage),
            "agents": [
                {
                    "id": line.id,
                    "parent_id": line.parent_id,
                    "label": line.label,
                    "mode": line.mode,
                    "outcome": line.outcome,
                    "usage": usage_object(line.usage),
                }
                for line in self.agents
            ],
            "abandoned": list(self.abandoned),
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
        }


def usage_object(usage: Usage) -> JSONObject:
    """Usage as the command line shows it."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_usd": usage.cost_usd,
        "requests": usage.requests,
    }


class Run:
    """Started by `App.run` or `App.resume`. Await `result`, iterate live text, or both; ignoring it loses nothing."""

    def __init__(self, agent: Agent, tree: TreeAccount, *, first: int) -> None:
        self.agent = agent
        self._tree = tree
        self._first = first

    @property
    def session_id(self) -> SessionId:
        """The root session; `retinue log` and `App.resume` take it."""
        return self.agent.id

    async def result(self) -> Result:
        """What the run came to, once the agent owes nothing. A failed run is a result, not an exception.

        Cancelling ends the wait and leaves the agent at work.
        """
        await self.agent.wait_idle()
        return self._result()

    def cancel(self, kind: Literal["user", "limit"] = "user", detail: str | None = None) -> None:
        """The current turn ends as soon as it can; what is queued stays and can be resumed."""
        self.agent.cancel(Cause(kind, detail), keep_mailbox=True)

    def _result(self) -> Result:
        session = self.agent.session
        came_to = outcome(session.events, first=self._first)
        failure = self.agent.failure
        error = _last_error(session, self._first)
        if failure is not None:
            error = ErrorRecord(*error_record(failure))
        return Result(
            session_id=session.id,
            outcome="error" if failure is not None else came_to.ending,
            output=came_to.text,
            usage=total_usage(session.events) + self._tree.usage,
            agents=self._tree.agents,
            error=error,
        )

    async def __aiter__(self) -> AsyncIterator[str]:
        """Visible text of the root as it streams, from now until the run is over.

        It is provisional: a `Withdrawn` piece says that the reply before it counts for nothing.
        """
        send, receive = anyio.create_memory_object_stream[str](float("inf"))
        over = anyio.Event()

        async def close_when_idle() -> None:
            await self.agent.wait_idle()
            over.set()
            send.close()

        with receive, _listening(self.agent, send.send_nowait):
            async with anyio.create_task_group() as group:
                group.start_soon(close_when_idle)
                try:
                    async for piece in receive:
                        yield piece
                finally:
                    group.cancel_scope.cancel()


@contextmanager
def _listening(agent: Agent, put: Callable[[str], Any]) -> Generator[None]:
    shown = False

    def chunk(event: ChunkArrived) -> None:
        nonlocal shown
        if isinstance(event.chunk, TextDelta):
            shown = True
            put(event.chunk.text)

    def withdrawn(event: ChunksWithdrawn) -> None:
        nonlocal shown
        if shown:
            put(Withdrawn("\n[the reply was cut off and is repeated]\n"))
        shown = False

    with agent.bus.on(ChunkArrived, chunk), agent.bus.on(ChunksWithdrawn, withdrawn):
        yield


def _last_error(session: Session, first: int) -> ErrorRecord | None:
    """The error of the newest turn that ended in this run, if it ended in one."""
    events: Sequence[Event] = session.events
    for event in reversed(events):
        if event.seq < first:
            break
        if isinstance(event.data, TurnEnd):
            end = event.data
            if end.error is None and end.reason in ("blocked", "aborted"):
                return ErrorRecord(end.reason.upper(), end.detail or end.cause or end.reason)
            return end.error
    return None
