"""One-shot runs in this process: a child with one prompt and one result, then gone.

A run that a crash cut off is found again by the call that asked: its child goes on where its log stops, and a child
that had ended is not run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

import anyio

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.registry import Agents, Setup
from retinue.base.ids import SessionId
from retinue.session.events import Descriptor, Event, RequestHeaderChange
from retinue.session.folds import descriptor
from retinue.session.store import SessionStore, StoredSession
from retinue.subagent.child import child_id, composition, creation, describe
from retinue.subagent.outcome import Outcome, outcome
from retinue.subagent.provider import Run, RunRequest
from retinue.subagent.structured import structured_setup, with_structured

__all__ = ["EndedRun", "LocalRun", "WaitQuiet", "start_one_shot"]

STOP_WAIT_S = 30.0
"""How long an aborted child may take to stop before its parent goes on; tools bound their own cleanup below this."""


WaitQuiet: TypeAlias = Callable[[Agent], Awaitable[None]]
"""Waits until an agent and all that it started have come to rest."""


class Waits(NamedTuple):
    """How a run waits for its child."""

    fresh: WaitQuiet | None = None
    resumed: WaitQuiet | None = None
    """For a child from an earlier process, whose own children may not be here yet."""


_UNTIL_IDLE = Waits()


class LocalRun:
    """A live child in this process. Its run is over when it is idle and nothing that it started is at work."""

    def __init__(
        self,
        agents: Agents,
        agent: Agent,
        wait_quiet: WaitQuiet | None = None,
        *,
        parent: Agent,
        is_structured: bool = False,
    ) -> None:
        self._agents = agents
        self._agent = agent
        self._parent = parent
        self._wait_quiet = wait_quiet or Agent.wait_idle
        self._first = agent.session.header.seed_length or 0
        self._is_structured = is_structured
        self._is_cancelled = False

    @property
    def id(self) -> SessionId:
        """The child's session id."""
        return self._agent.id

    @property
    def agent(self) -> Agent | None:
        """The live child."""
        return self._agent

    async def result(self) -> Outcome:
        """See `Run.result`. Raises: the failure that stopped the child's driver."""
        try:
            await self._wait_quiet(self._agent)
        except anyio.get_cancelled_exc_class():
            if self._is_left:
                raise
            self._is_cancelled = True
            self._agent.cancel(Cause("parent"), keep_mailbox=True)
            with anyio.move_on_after(STOP_WAIT_S, shield=True):
                await self._agent.wait_idle()
            raise
        if self._agent.failure is not None:
            raise self._agent.failure
        return _account(self._agent.session.events, self._first, self._is_structured, is_cancelled=self._is_cancelled)

    async def dispose(self) -> None:
        """See `Run.dispose`. Nothing is disposed that goes on with its parent later."""
        if not self._is_left:
            await self._agents.dispose(self._agent)

    @property
    def _is_left(self) -> bool:
        """The host suspends, or the parent's turn was cut off by the store: the same call finds the child again."""
        return self._agents.is_suspending or self._parent.session.failure is not None


class EndedRun:
    """A run whose child had ended before this process looked."""

    def __init__(self, id: SessionId, events: Sequence[Event], first: int, *, is_structured: bool = False) -> None:
        self._id = id
        self._events = events
        self._first = first
        self._is_structured = is_structured

    @property
    def id(self) -> SessionId:
        """The child's session id."""
        return self._id

    @property
    def agent(self) -> Agent | None:
        """None: nothing runs."""
        return None

    async def result(self) -> Outcome:
        """What its log says."""
        return _account(self._events, self._first, self._is_structured)

    async def dispose(self) -> None:
        """Nothing to do."""


def _account(events: Sequence[Event], first: int, is_structured: bool, *, is_cancelled: bool = False) -> Outcome:
    made = outcome(events, first=first)
    return with_structured(made, events, first=first, is_cancelled=is_cancelled) if is_structured else made


async def start_one_shot(
    agents: Agents,
    request: RunRequest,
    provider: str,
    *,
    seed: Sequence[Event] = (),
    waits: Waits = _UNTIL_IDLE,
) -> Run:
    """The child is accepted, or found again if the same call started it before.

    Raises: DepthExceeded before anything exists; what building the child raises, with nothing left behind.
    """
    made = describe(request, provider, "one-shot")
    new = creation(request, made, setup=_setup(made, request), seed=seed)
    if request.key is not None:
        found = await _find(agents, request, waits.resumed)
        if found is not None:
            return found
    agent = await agents.create(new)
    is_structured = request.output_schema is not None
    return LocalRun(agents, agent, waits.fresh, parent=request.parent, is_structured=is_structured)


def _setup(made: Descriptor, request: RunRequest) -> Setup:
    own = composition(made)
    return own if request.output_schema is None else structured_setup(request.output_schema, own)


def _has_asked(stored: StoredSession) -> bool:
    first = stored.header.seed_length or 0
    return any(event.seq >= first and type(event.data) is RequestHeaderChange for event in stored.events)


async def _owes_work(store: SessionStore, id: SessionId, root: SessionId) -> bool:
    """The session, or one below it, has work left: a run is over when nothing that it started is at work either."""
    owing = set(await store.owing(root))
    todo = [id]
    while todo and owing:
        at = todo.pop()
        if at in owing:
            return True
        todo.extend([child.header.id for child in await store.children(at)])
    return False


async def _find(agents: Agents, request: RunRequest, wait_quiet: WaitQuiet | None) -> Run | None:
    """The run of an earlier process for the same call."""
    store = request.parent.environment.sessions.store
    id = child_id(request)
    summary = await store.summary(id)
    if summary is None:
        return None
    stored = await store.read(id)
    is_structured = request.output_schema is not None
    if not await _owes_work(store, id, summary.root):
        return EndedRun(id, stored.events, stored.header.seed_length or 0, is_structured=is_structured)
    made = descriptor(stored.header, stored.events)
    agent = await agents.resume(
        id,
        # What the log says of requests is the parent's, if anything, until the child has made one of its own.
        options=None if _has_asked(stored) else request.options.over(request.parent.options),
        setup=_setup(made, request) if made is not None else None,
    )
    return LocalRun(agents, agent, wait_quiet, parent=request.parent, is_structured=is_structured)
