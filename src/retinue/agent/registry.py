"""The live agents of a host: created in one window that publishes or leaves nothing, resumed, disposed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

import anyio
import anyio.lowlevel
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions, Environment
from retinue.agent.signals import AgentCreated, AgentDisposed, SessionStarted, StartSource
from retinue.base.ids import SessionId
from retinue.base.scope import Undo
from retinue.errors import AgentClosing, AlreadyExists
from retinue.session.events import Descriptor, EndSeed, Event, RequestHeaderChange, SessionHeader
from retinue.session.folds import descriptor
from retinue.session.session import Session
from retinue.session.transaction import Transaction

__all__ = ["Agents", "BeforeDisposal", "Creation", "LastWord", "Setup"]

Setup: TypeAlias = Callable[[Agent], Awaitable[None]]
"""Composes an unpublished agent: registers on its tools, prompt and chains, enters contexts on its scope."""

BeforeDisposal: TypeAlias = Callable[[Agent], Awaitable[None]]
LastWord: TypeAlias = Callable[[Session, "Exception | None"], Awaitable[None]]


class Creation(Struct, frozen=True, kw_only=True):
    """What a new agent is made from."""

    header: SessionHeader
    options: AgentOptions
    label: str = ""
    root: SessionId | None = None
    """The session whose lease guards it; itself if None."""
    seed: Sequence[Event] = ()
    """Events copied from another log, seqs from 0."""
    setup: Setup | None = None
    commit: Callable[[Transaction, Agent], None] | None = None
    """Adds to the batch that creates the session: own events, the first message, a sender's result. Synchronous."""


class Agents:
    """Who lives in this process. An agent's id is its session's."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._live: dict[SessionId, Agent] = {}
        self._building: set[SessionId] = set()
        self._setups: tuple[Setup, ...] = ()
        self._before_disposal: tuple[BeforeDisposal, ...] = ()
        self._disposals: dict[Agent, anyio.Event] = {}
        self._suspending = anyio.Event()

    @property
    def is_suspending(self) -> bool:
        """The host is going: what runs is cut off and stays open in its log, so nobody stops or disposes anybody."""
        return self._suspending.is_set()

    def suspend(self) -> None:
        """From now on the host is going."""
        self._suspending.set()

    async def wait_suspending(self) -> None:
        """Return once the host is going."""
        await self._suspending.wait()

    def on_setup(self, setup: Setup) -> Undo:
        """`setup` composes every later agent, before its own setup."""
        self._setups = (*self._setups, setup)

        def undo() -> None:
            self._setups = tuple(x for x in self._setups if x is not setup)

        return Undo(undo)

    def get(self, id: SessionId) -> Agent | None:
        """The live agent of that session."""
        return self._live.get(id)

    def is_live(self, agent: Agent) -> bool:
        """It is the very object registered under its id; another of the same id is not."""
        return self._live.get(agent.id) is agent

    def list(self) -> tuple[Agent, ...]:
        """All live agents, oldest first."""
        return tuple(self._live.values())

    def roots(self) -> tuple[Agent, ...]:
        """Live agents that nobody delegated to."""
        return tuple(agent for agent in self._live.values() if agent.session.header.origin is None)

    async def create(self, creation: Creation) -> Agent:
        """The agent is published and its session durable.

        Whatever fails before that leaves nothing behind: no agent, no session, no registration. Raises:
        AlreadyExists, AgentClosing, SessionHeld, StoreFailure, and what a setup or an `AgentCreated` listener raises.
        Cancelling takes effect until the batch is submitted, and never after.
        """
        sessions = self._environment.sessions
        header = creation.header
        with self._reserved(header.id):
            if await sessions.store.summary(header.id) is not None:
                raise AlreadyExists(f"session {header.id!r} exists already; resume it, or choose another id")
            root = creation.root or header.id
            hold = await sessions.hold(root)
            tx = sessions.transaction()
            session = tx.create(header, root, hold, creation.seed)
            if creation.seed:
                tx.append(session, EndSeed())
            agent = Agent(self._environment, session, creation.options, label=creation.label)
            try:
                await self._compose(agent, creation.setup)
                if creation.commit is not None:
                    creation.commit(tx, agent)
                self._live[agent.id] = agent
                self._environment.bus.publish_or_veto(AgentCreated(agent))
                await anyio.lowlevel.checkpoint_if_cancelled()  # the last moment at which it leaves nothing behind
                self._check_open(agent.id)
                receipt = tx.submit()
            except BaseException:
                await self._roll_back(agent)
                raise
        self._start(agent, "startup")
        try:
            await receipt.wait()
        except Exception:
            await self.dispose(agent)
            raise
        return agent

    async def resume(self, id: SessionId, *, options: AgentOptions | None = None, setup: Setup | None = None) -> Agent:
        """The agent of a stored session is live; it goes on at once if its session owes work.

        A live agent is the answer as it is. Options that are not given come from the log's last request, else from the
        child's descriptor, else from the host. Raises: SessionNotFound, SessionHeld, CorruptSession, and what a setup
        raises: nothing is left behind then.
        """
        while (live := self._live.get(id) or self._going(id)) is not None:
            if live in self._disposals:
                await self._wait_disposed(live)
            elif live.failure is None:
                return live
            else:
                await self.dispose(live)
        with self._reserved(id):
            session = await self._environment.sessions.load(id)
            made = descriptor(session.header, session.events)
            agent = Agent(
                self._environment,
                session,
                (options or AgentOptions()).over(_logged_options(session, made).over(self._environment.options)),
                label=(made.label if made is not None else None) or "",
            )
            try:
                await self._compose(agent, setup)
                self._check_open(id)
                self._live[id] = agent
                self._environment.bus.publish_or_veto(AgentCreated(agent))
            except BaseException:
                await self._roll_back(agent)
                raise
        self._start(agent, "resume")
        return agent

    def close_admission(self) -> None:
        """No agent takes anything any more, and none starts."""
        self.suspend()
        for agent in self._live.values():
            agent.close_admission()

    def _check_open(self, id: SessionId) -> None:
        """Return if agents can be driven. Raises: AgentClosing."""
        if self.is_suspending:
            raise AgentClosing(f"agent {id!r} cannot be here: its host is closed, or is being closed")

    def _going(self, id: SessionId) -> Agent | None:
        """An agent that is being disposed holds its session until the end, also when it has left the registry."""
        return next((agent for agent in self._disposals if agent.id == id), None)

    def _reserved(self, id: SessionId) -> Undo:
        if id in self._live or id in self._building:
            raise AlreadyExists(f"agent {id!r} is live already")
        self._building.add(id)
        return Undo(lambda: self._building.discard(id))

    async def _compose(self, agent: Agent, setup: Setup | None) -> None:
        for compose in self._setups:
            await compose(agent)
        if setup is not None:
            await setup(agent)

    def _start(self, agent: Agent, source: StartSource) -> None:
        agent.bus.publish(SessionStarted(agent, source))
        agent.open()

    async def _roll_back(self, agent: Agent) -> None:
        try:
            with anyio.move_on_after(5, shield=True):
                await agent.unwind()
        finally:
            self._forget(agent)
            await self._let_go(agent)

    def _forget(self, agent: Agent) -> None:
        if self._live.get(agent.id) is agent:
            del self._live[agent.id]
            self._environment.bus.publish(AgentDisposed(agent))

    async def _let_go(self, agent: Agent) -> None:
        sessions = self._environment.sessions
        agent.session.driver = None
        sessions.unload(agent.session)
        await sessions.release(agent.session.root)

    def before_disposal(self, hook: BeforeDisposal) -> Undo:
        """`hook` runs at the start of every later disposal, while the agent still lives."""
        self._before_disposal = (*self._before_disposal, hook)

        def undo() -> None:
            self._before_disposal = tuple(x for x in self._before_disposal if x is not hook)

        return Undo(undo)

    async def dispose(self, agent: Agent, *, last: LastWord | None = None) -> None:
        """The agent has stopped, its scope is gone, it left the registry and its session is not loaded any more.

        Its turn, if one runs, ends as aborted by `disposed`; pending messages stay. `last` is called when the agent is
        gone and its session is still loaded, with what closing the scope raised, which is then not raised here. Later
        calls have the result of the first. Shielded from cancellation. Raises: what closing the agent's scope raises.
        """
        if agent in self._disposals or not self.is_live(agent):
            await self._wait_disposed(agent)
            if agent.disposal_failure is not None:
                raise agent.disposal_failure
            return
        self._disposals[agent] = done = anyio.Event()
        with anyio.CancelScope(shield=True):
            try:
                try:
                    await self._end(agent, last)
                finally:
                    await self._let_go(agent)
            except Exception as error:
                agent.disposal_failure = error
                raise
            finally:  # whoever waits for the end must not wait for ever, whatever went wrong with it
                del self._disposals[agent]
                done.set()

    async def _wait_disposed(self, agent: Agent) -> None:
        """The disposal of the agent, if one is under way, is over, whatever it came to."""
        done = self._disposals.get(agent)
        if done is not None:
            with anyio.CancelScope(shield=True):
                await done.wait()

    async def _end(self, agent: Agent, last: LastWord | None) -> None:
        agent.close_admission()
        failures: list[Exception] = []
        for part in (*(partial(hook, agent) for hook in self._before_disposal), agent.unwind):
            try:
                await part()
            except Exception as error:
                failures.append(error)
        failure = (
            next(iter(failures), None)
            if len(failures) < 2
            else ExceptionGroup(f"disposing {agent.id!r} failed", failures)
        )
        self._forget(agent)
        agent.session.driver = None
        if last is not None:
            await last(agent.session, failure)
        elif failure is not None:
            raise failure


def _logged_options(session: Session, made: Descriptor | None) -> AgentOptions:
    context, header = session.turns.context, session.turns.header
    if made is not None and (context is None or not _has_asked(session)):
        return AgentOptions(provider=made.agent_provider, model=made.agent_model, max_tokens=made.max_tokens)
    if context is None:
        return AgentOptions()
    config = dict(header.config) if header is not None else {}
    config.pop("model", None)
    max_tokens = config.pop("max_tokens", None)
    return AgentOptions(
        provider=context.provider,
        model=context.model,
        max_tokens=max_tokens if isinstance(max_tokens, int) else None,
        body=config,
    )


def _has_asked(session: Session) -> bool:
    """The agent has made a request of its own: what a seed says of requests is its parent's."""
    own = islice(session.events, session.header.seed_length or 0, None)
    return any(type(event.data) is RequestHeaderChange for event in own)
