"""One piece of work on a root agent: live text while it goes on, one result when nothing is owed any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.signals import ChunkArrived, ChunksWithdrawn
from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.compose.tree import AgentLine, TreeAccount, usage_object
from retinue.errors import error_record
from retinue.model.chunks import TextDelta
from retinue.model.content import Usage
from retinue.session.events import ErrorRecord, TurnEnd
from retinue.session.folds import total_usage
from retinue.subagent.continuation import Continuations
from retinue.subagent.outcome import Ending, Outcome, last_words, outcome

__all__ = ["Result", "Run", "Withdrawn"]


_ENDINGS: Mapping[Ending, str] = {
    "max-tokens": "the last reply hit its ceiling of output tokens and is not whole",
    "refusal": "the model declined to answer, or a hook refused the turn",
    "aborted": "the turn was cancelled before it was done",
    "timeout": "the time limit was reached before the turn was done",
    "over-budget": "the token limit was reached before the turn was done",
}


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
    stopped: tuple[str, ...] = ()
    """Ids of agents and tasks that were stopped on purpose, because the root was done."""
    error: ErrorRecord | None = None
    """Why the outcome is not `completed`."""

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
            "stopped": list(self.stopped),
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
        }


class Run:
    """Started by `App.run` or `App.resume`. Await `result`, iterate live text, or both; ignoring it loses nothing."""

    def __init__(
        self, agent: Agent, tree: TreeAccount, *, first: int, continuations: Continuations | None = None
    ) -> None:
        self.agent = agent
        self._continuations = continuations
        self.tree = tree
        """What the agents below the root have used and become so far."""
        self._first = first

    @property
    def session_id(self) -> SessionId:
        """The root session; `retinue log` and `App.resume` take it."""
        return self.agent.id

    async def result(self) -> Result:
        """What the run came to, once the agent and all that it started owe nothing and its log is durable.

        A child that settles wakes the agent, and the turns that opens belong to the run. A failed run is a result, not
        an exception. Cancelling ends the wait and leaves the agent at work. Raises:
        StoreFailure if the disk did not confirm.
        """
        await self.wait_quiet()
        await self.agent.environment.sessions.writer.durable()
        return self.so_far()

    async def wait_quiet(self) -> None:
        """Neither the agent nor anything that it started is at work. Cancelling ends the wait and nothing else."""
        if self._continuations is not None:
            await self._continuations.wait_quiet(self.agent)
        else:
            await self.agent.wait_idle()

    @property
    def is_at_work(self) -> bool:
        """The root's turn is open, or a message is pending that will open one."""
        session = self.agent.session
        return session.turns.open is not None or session.mailbox.is_runnable

    def cancel(self, kind: Literal["user", "limit"] = "user", detail: str | None = None) -> None:
        """The current turn ends as soon as it can; what is queued stays and can be resumed."""
        self.agent.cancel(Cause(kind, detail), keep_mailbox=True)

    def so_far(self) -> Result:
        """What the log says now; a run that is still at work counts as `aborted`."""
        session = self.agent.session
        if self.is_at_work:
            words = last_words(session.events, first=self._first)
            came_to = Outcome(ending="aborted", output=words, diagnostic="it is still at work")
        else:
            came_to = outcome(session.events, first=self._first)
        failure = self.agent.failure
        ending: Ending = "error" if failure is not None else came_to.ending
        error = ErrorRecord(*error_record(failure)) if failure is not None else self._error(came_to)
        return Result(
            session_id=session.id,
            outcome=ending,
            output=came_to.text,
            usage=total_usage(session.events) + self.tree.usage,
            agents=self.tree.agents,
            error=error,
        )

    def _error(self, came_to: Outcome) -> ErrorRecord | None:
        """Why it did not complete: the error of its last turn, or its ending in words."""
        if came_to.ending == "completed":
            return None
        if self.is_at_work:
            return ErrorRecord("ABORTED", came_to.diagnostic or "")
        for event in reversed(self.agent.session.events):
            if event.seq < self._first:
                break
            if isinstance(event.data, TurnEnd):
                if event.data.error is not None:
                    return event.data.error
                break
        words = _ENDINGS.get(came_to.ending) or came_to.diagnostic or "it did not complete"
        return ErrorRecord(came_to.ending.upper().replace("-", "_"), words)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Visible text of the root as it streams, from now until the run is over.

        It is provisional: a `Withdrawn` piece says that the reply before it counts for nothing.
        """
        send, receive = anyio.create_memory_object_stream[str](float("inf"))

        async def close_when_idle() -> None:
            await self.wait_quiet()
            send.close()

        with send, receive, _listening(self.agent, send.send_nowait):
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
