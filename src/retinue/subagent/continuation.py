"""Continuable children: started, messaged, interrupted, settled exactly once per activation, drained child-first.

This module awaits and writes; what an activation is and when it may settle is decided by `activation.py` alone. What it
keeps in memory is who is resident; everything else is a fold of logs and rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import anyio

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause, Idle
from retinue.agent.registry import Agents
from retinue.agent.signals import MessageClaimed, MessageDiscarded, StatusChanged
from retinue.base.bus import Bus
from retinue.base.ids import SessionId
from retinue.errors import (
    ActivationClosing,
    CorruptSession,
    Draining,
    NotQuiet,
    NotResumable,
    RetinueError,
    SessionNotFound,
    Unauthorized,
    error_record,
)
from retinue.host.host import Host, Seam
from retinue.session.events import ActivationEnd, ActivationStart, Descriptor
from retinue.session.folds import descriptor
from retinue.session.rows import Delivery
from retinue.session.session import Session
from retinue.session.transaction import Transaction
from retinue.subagent.activation import Residency, activation_outcome, standing
from retinue.subagent.child import ChildSetup, child_id, composition, creation, describe, prompt_id
from retinue.subagent.lifecycle import SubagentEnded, SubagentStarted
from retinue.subagent.notice import settlement_message
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import Providers, RunRequest
from retinue.subagent.resident import Accepted, Keyed, Resident

__all__ = ["CONTINUATIONS", "Continuations", "LiveTasks"]

_log = logging.getLogger("retinue")

LiveTasks = Callable[[Agent], int]
"""How many background tasks of an agent have not ended."""


class Continuations:
    """The continuable children of one host."""

    def __init__(self, host: Host, providers: Providers, *, live_tasks: LiveTasks = lambda _: 0) -> None:
        self._host = host
        self._agents: Agents = host.agents
        self._providers = providers
        self._live_tasks = live_tasks
        self._resident: dict[SessionId, Resident] = {}
        self._locks = Keyed()
        self._draining: set[Agent] = set()
        self._changed = anyio.Event()
        self._setups: tuple[ChildSetup, ...] = ()

    def contribute(self, setup: ChildSetup) -> Callable[[], None]:
        """`setup` composes every later activation of every child, after its own composition. The result undoes it."""
        self._setups = (*self._setups, setup)

        def undo() -> None:
            self._setups = tuple(x for x in self._setups if x is not setup)

        return undo

    # Who is there

    def resident(self, id: SessionId) -> Agent | None:
        """The live agent of a child whose activation is open."""
        found = self._resident.get(id)
        return None if found is None else found.agent

    def below(self, id: SessionId) -> Iterator[Resident]:
        """Residents whose recorded ancestry holds `id`, parents before children."""
        return (r for r in sorted(self._resident.values(), key=lambda r: r.agent.depth) if id in r.ancestry)

    def _open_children(self, id: SessionId) -> int:
        return sum(r.parent_id == id for r in self._resident.values())

    def _pulse(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_quiet(self, agent: Agent) -> None:
        """The agent is idle, nothing is left that would start it, and nothing that it started is at work."""
        while True:
            changed = self._changed
            await agent.wait_idle()
            if standing(self._seen(agent)) == "settled" or agent.is_closing:
                return
            await changed.wait()

    async def wait_settled(self, id: SessionId) -> None:
        """No activation of the child is open in this process."""
        while id in self._resident:
            await self._changed.wait()

    def _seen(self, agent: Agent) -> Residency:
        return Residency(
            is_running=not isinstance(agent.phase, Idle),
            is_runnable=agent.session.mailbox.is_runnable,
            open_children=self._open_children(agent.id),
            live_tasks=self._live_tasks(agent),
        )

    # Starting

    async def start(self, provider_name: str, request: RunRequest) -> Accepted:
        """The child's mailbox durably holds the prompt, and the child runs.

        The same call again gets the first receipt. Cancelling before acceptance leaves nothing behind, and changes
        nothing after it. Raises: Draining, ActivationClosing, Unauthorized, NoProvider, UnsupportedCapability,
        DepthExceeded, and what building the child raises.
        """
        self._check_admission(request.parent)
        provider = self._providers.continuable(provider_name, request)
        id = child_id(request)
        message_id = prompt_id(id)
        async with self._locks.hold(id):
            if await self._host.sessions.store.summary(id) is not None:
                return Accepted(child_id=id, message_id=message_id)
            seed = await provider.prepare(request)
            self._check_admission(request.parent)
            made = describe(request, provider_name, "continuable")
            resident = Resident(parent_id=request.parent.id, ancestry=self._ancestry(request.parent), descriptor=made)

            async def setup(agent: Agent) -> None:
                await self._compose(agent, resident)
                self._check_admission(request.parent)

            agent = await self._agents.create(creation(request, made, seed=seed, setup=setup))
            self._reside(resident, agent)
        return Accepted(child_id=id, message_id=message_id)

    def _check_admission(self, parent: Agent) -> None:
        if not self._agents.is_live(parent):
            raise Unauthorized(f"agent {parent.id!r} is not the registered one; only a live agent may do this")
        if parent in self._draining or any(p in self._draining for p in self._lineage(parent)):
            raise Draining(f"the tree below {parent.id!r} is being drained; nothing new starts in it")
        if parent.is_closing:
            raise ActivationClosing(f"agent {parent.id!r} is being disposed; nothing new starts below it")

    def _lineage(self, agent: Agent) -> Iterator[Agent]:
        for id in self._ancestry(agent):
            live = self._agents.get(id)
            if live is not None:
                yield live

    def _ancestry(self, agent: Agent) -> tuple[SessionId, ...]:
        """The agent and everyone above it, nearest first."""
        found = self._resident.get(agent.id)
        above = found.ancestry if found is not None else ()
        parent = agent.session.header.parent_session
        return (agent.id, *(above or ((parent,) if parent is not None else ())))

    async def _compose(self, agent: Agent, resident: Resident) -> None:
        resident.agent = agent
        await composition(resident.descriptor)(agent)
        for setup in self._setups:
            await setup(agent, resident.descriptor)
        agent.bus.on(StatusChanged, lambda _: self._stir(resident))
        agent.bus.on(MessageClaimed, lambda _: self._stir(resident))
        agent.bus.on(MessageDiscarded, lambda event: self._discarded(resident, event))

    def stir(self, owner: Agent | None) -> None:
        """What the standing of `owner` depends on may have changed: its background work began or ended."""
        resident = self._resident.get(owner.id) if owner is not None else None
        if resident is not None and resident.agent is owner:
            resident.stir()
        self._pulse()

    def _stir(self, resident: Resident) -> None:
        resident.stir()
        self._pulse()

    def _discarded(self, resident: Resident, event: MessageDiscarded) -> None:
        if event.row.delivery.wake and event.reason != "replaced":
            resident.dropped_at = resident.agent.session.next_seq
        self._stir(resident)

    def _reside(self, resident: Resident, agent: Agent) -> None:
        activation = agent.session.turns.activation
        resident.agent, resident.epoch = (
            agent,
            activation.epoch if activation is not None else agent.session.turns.epochs,
        )
        self._resident[agent.id] = resident
        parent = self._agents.get(resident.parent_id)
        bus: Bus = parent.bus if parent is not None else self._host.bus
        bus.publish(
            SubagentStarted(
                run_id=resident.run_id,
                provider=resident.descriptor.provider,
                id=agent.id,
                parent=resident.parent_id,
                local=True,
            )
        )
        self._host.start(partial(self._supervise, resident))

    # Following up

    async def check_follow_up(self, parent: Agent, id: SessionId) -> None:
        """Return if `parent` may send to the child `id` and the child can take it.

        Raises: Unauthorized, NotResumable, Draining, ActivationClosing.
        """
        self._check_admission(parent)
        try:
            stored = await self._host.sessions.store.read(id)
        except SessionNotFound:
            raise NotResumable(f"there is no agent {id!r}; list_agents shows those that can be messaged") from None
        except CorruptSession as error:
            raise NotResumable(f"agent {id!r} cannot be read, so it cannot be resumed: {error}") from error
        if stored.header.parent_session != parent.id:
            raise Unauthorized(
                f"agent {id!r} belongs to {stored.header.parent_session!r}; only its direct parent may message it"
            )
        made = descriptor(stored.header, stored.events)
        if made is None or made.mode != "continuable" or made.version != 2:
            raise NotResumable(
                f"agent {id!r} was a single run and takes no messages; do not retry, start a new one instead"
            )

    def follow_up(self, tx: Transaction, parent: Agent, delivery: Delivery) -> None:
        """The delivery is part of `tx`, and the child will be resident once that is committed.

        Call `check_follow_up` before. Raises: Unauthorized, Draining, ActivationClosing.
        """
        self._check_admission(parent)
        tx.insert(delivery)
        self._host.start(partial(self._make_resident, delivery.session_id))

    async def _make_resident(self, id: SessionId) -> None:
        """The child runs if it has something to run. A failure to build it becomes its settlement."""
        await self._host.sessions.writer.committed()
        async with self._locks.hold(id):
            if id in self._resident or self._agents.get(id) is not None:
                return
            try:
                await self._resume(id)
            except RetinueError as error:
                _log.warning("child %s could not be resumed: %s", id, error)
                await self._settle_unbuilt(id, error)

    async def _resume(self, id: SessionId) -> None:
        session = await self._host.sessions.load(id)
        if session.turns.activation is None and not session.mailbox.is_runnable:
            self._host.sessions.unload(session)
            return
        made = descriptor(session.header, session.events)
        if made is None or session.header.parent_session is None:
            raise NotResumable(f"session {id!r} has no descriptor of a continuable child")
        if session.turns.activation is None:
            tx = self._host.sessions.transaction()
            tx.append(session, ActivationStart(session.turns.epochs + 1))
            tx.submit()
        resident = Resident(
            parent_id=session.header.parent_session, ancestry=await self._stored_ancestry(session), descriptor=made
        )
        agent = await self._agents.resume(id, setup=lambda agent: self._compose(agent, resident))
        self._reside(resident, agent)

    async def _stored_ancestry(self, session: Session) -> tuple[SessionId, ...]:
        ids: list[SessionId] = []
        parent = session.header.parent_session
        while parent is not None and parent not in ids:
            ids.append(parent)
            summary = await self._host.sessions.store.summary(parent)
            parent = summary.header.parent_session if summary is not None else None
        return tuple(ids)

    async def _settle_unbuilt(self, id: SessionId, error: RetinueError) -> None:
        code, message = error_record(error)
        try:
            session = await self._host.sessions.load(id)
            made = descriptor(session.header, session.events)
            if made is None or session.turns.open is not None:
                return
            if session.turns.activation is None:
                tx = self._host.sessions.transaction()
                tx.append(session, ActivationStart(session.turns.epochs + 1))
                tx.submit()
            outcome = Outcome(ending="error", diagnostic=f"{code}: {message}")
            await self._write_settlement(session, made, outcome)
            self._host.sessions.unload(session)
        except RetinueError as second:
            _log.warning("child %s stays unsettled until its tree is resumed: %s", id, second)

    async def recover(self, root: Agent) -> None:
        """Every continuable child of the tree that owes work is resident again, parents before children."""
        store = self._host.sessions.store
        owing = [id for id in await store.owing(root.session.root) if id != root.id]
        depths: dict[SessionId, int] = {}
        for id in owing:
            stored = await store.read(id)
            made = descriptor(stored.header, stored.events)
            if made is not None and made.mode == "continuable":
                depths[id] = stored.header.delegation_depth
        for id in sorted(depths, key=lambda id: depths[id]):
            await self._make_resident(id)

    # Settling

    async def _supervise(self, resident: Resident) -> None:
        """Runs as long as the activation: settles it once it is quiet."""
        while not resident.is_over:
            changed = resident.changed
            if standing(self._seen(resident.agent)) == "settled" or resident.agent.failure is not None:
                await self._close(resident)
            else:
                await changed.wait()

    async def _close(self, resident: Resident, *, forced: bool = False) -> None:
        """The activation is settled and its agent gone; or, not `forced`, it goes on since something had arrived."""
        agent = resident.agent
        async with self._locks.hold(agent.id):
            if resident.is_over or agent is not resident.agent:
                return
            if not forced and agent.failure is None and standing(self._seen(agent)) != "settled":
                return

            async def last(session: Session, failure: Exception | None) -> None:
                await self._settle(resident, session, failure, forced=forced)

            await self._agents.dispose(agent, last=last)
            if not resident.is_over:
                await self._rebuild(resident)
            if resident.is_over:
                self._leave(resident)

    async def _settle(self, resident: Resident, session: Session, failure: Exception | None, *, forced: bool) -> None:
        if (
            session.failure is not None
            or session.turns.open is not None
            or (session.mailbox.is_runnable and not forced)
        ):
            return
        activation = session.turns.activation
        assert activation is not None
        outcome = activation_outcome(
            session.events, first=activation.seq, dropped=resident.dropped_after(session.events)
        )
        if failure is not None:
            outcome = Outcome(ending="error", diagnostic=f"ACTIVATION_TEARDOWN_FAILED: {failure}", usage=outcome.usage)
        try:
            await self._write_settlement(session, resident.descriptor, outcome, forced=forced)
        except NotQuiet:
            return
        except RetinueError as error:
            _log.warning("the settlement of %s waits until its tree is resumed: %s", session.id, error)
            resident.is_unsettled = True
        resident.outcome = outcome

    async def _write_settlement(
        self, session: Session, made: Descriptor, outcome: Outcome, *, forced: bool = True
    ) -> None:
        """One transaction: the end of the activation, its usage, the parent's row. Source: architecture, section 3."""
        activation, parent = session.turns.activation, session.header.parent_session
        assert activation is not None
        assert parent is not None
        tx = self._host.sessions.transaction()
        parked = tx.park(session) if forced else session.mailbox.parked
        tx.append(
            session,
            ActivationEnd(
                epoch=activation.epoch,
                outcome=outcome.ending,
                detail=outcome.diagnostic,
                usage=outcome.usage if outcome.usage.requests else None,
                parked=parked,
            ),
        )
        tx.settle(session)
        message = settlement_message(session.id, activation.epoch, made.label, outcome, parked)
        live = self._agents.get(parent)
        is_busy = live is not None and live.status == "running"
        tx.insert(
            Delivery(
                session_id=parent,
                message=message,
                target="next-step" if is_busy else "next-turn",
                wake=live is None or not (live.is_closing or self._is_draining(live)),
                accepted_at=self._host.clock.now_ms(),
                usage=outcome.usage,
            )
        )
        await tx.submit().wait()

    def _is_draining(self, agent: Agent) -> bool:
        return agent in self._draining or any(above in self._draining for above in self._lineage(agent))

    def _leave(self, resident: Resident) -> None:
        self._resident.pop(resident.agent.id, None)
        above = self._resident.get(resident.parent_id)
        if above is not None:
            above.stir()
        resident.stir()
        parent = self._agents.get(resident.parent_id)
        if resident.outcome is not None:
            (parent.bus if parent is not None else self._host.bus).publish(
                SubagentEnded(
                    run_id=resident.run_id,
                    provider=resident.descriptor.provider,
                    id=resident.agent.id,
                    parent=resident.parent_id,
                    local=True,
                    outcome=resident.outcome.ending,
                    last_message=resident.outcome.text,
                )
            )
        self._pulse()

    async def _rebuild(self, resident: Resident) -> None:
        """Something arrived while the child was taken down: it is built again and the same activation goes on."""
        id = resident.agent.id
        try:
            resident.agent = await self._agents.resume(id, setup=lambda agent: self._compose(agent, resident))
        except RetinueError as error:
            _log.warning("child %s could not be built again; it goes on when its tree is resumed: %s", id, error)
            resident.is_unsettled = True
        resident.stir()

    # Stopping

    def interrupt(self, id: SessionId, caller: Agent) -> None:
        """The child's current turn ends as soon as it can; queued messages are parked and its own children go on.

        A child that is not resident is left alone. Raises: Unauthorized for a caller that is not a live ancestor.
        """
        if not self._agents.is_live(caller) or caller.id == id:
            raise Unauthorized(f"agent {caller.id!r} may not interrupt {id!r}: only a live ancestor may")
        resident = self._resident.get(id)
        if resident is None:
            return
        if caller.id not in resident.ancestry:
            raise Unauthorized(f"agent {id!r} was not started by {caller.id!r} or its descendants")
        if not resident.agent.is_closing:
            resident.agent.cancel(Cause("parent"), keep_mailbox=True)

    async def drain_below(self, agent: Agent) -> None:
        """Nothing that the agent started is resident: cancelled top-down, released child-first, each settled.

        New starts, messages and reports below it are refused from now on. Queues are parked, not withdrawn.
        """
        self._draining.add(agent)
        try:
            below = tuple(self.below(agent.id))
            for resident in below:
                resident.agent.close_admission()
                resident.agent.cancel(Cause("parent"), keep_mailbox=True)
            for resident in reversed(below):
                await self._close(resident, forced=True)
        finally:
            self._draining.discard(agent)

    async def drain(self) -> None:
        """Nothing is resident any more."""
        roots = {r.ancestry[-1] for r in self._resident.values()}
        for root in roots:
            live = self._agents.get(root)
            if live is not None:
                await self.drain_below(live)


CONTINUATIONS: Seam[Continuations] = Seam("subagent.continuations")
"""Where the continuable children of a host are found."""
