"""Continuable children: started, messaged, interrupted, drained. What of it lasts is logs and rows.

This module says when something counts as accepted, and does it. `authority.py` decides who may do what, `supervisor.py`
drives what was accepted to its end, and `roster.py` knows who is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.signals import StopAsked, Stopped
from retinue.base.ids import MessageId, SessionId, new_message_id
from retinue.base.scope import Undo
from retinue.errors import (
    ActivationTeardownFailed,
    BadInput,
    DepthExceeded,
    Draining,
    DuplicateChild,
    Unauthorized,
    error_record,
)
from retinue.host.host import Host, Seam
from retinue.model.content import InputBlock, Source, Text, UserMessage
from retinue.session.events import Event
from retinue.session.rows import Delivery
from retinue.session.transaction import Transaction
from retinue.subagent.activation import standing
from retinue.subagent.authority import Authority
from retinue.subagent.child import child_depth, child_id, creation, describe, prompt_id
from retinue.subagent.contributions import ChildSetup, Contributions
from retinue.subagent.interrupted import settle_interrupted
from retinue.subagent.provider import ContinuableProvider, Providers, RunRequest
from retinue.subagent.recovery import Recovery
from retinue.subagent.resident import Accepted, Keyed, Resident
from retinue.subagent.roster import Roster
from retinue.subagent.stopping import Stops
from retinue.subagent.supervisor import LiveTasks, Supervisor

__all__ = ["CONTINUATIONS", "Continuations"]


class Continuations:
    """The continuable children of one host."""

    def __init__(self, host: Host, providers: Providers, *, live_tasks: LiveTasks = lambda _: 0) -> None:
        self._host = host
        self._agents = host.agents
        self._providers = providers
        self._roster = Roster()
        self._contributions = Contributions()
        self._stops = Stops(self._drain)
        self.authority = Authority(host, self._roster, self._stops)
        """Who may do what."""
        self._supervisor = Supervisor(
            host,
            self._roster,
            self._contributions,
            live_tasks=live_tasks,
            is_draining=self.authority.is_draining,
            is_stopping=lambda resident: self._stops.cover((resident.id, *resident.ancestry)),
        )
        self._recovery = Recovery(host, self._roster, self._supervisor)
        self._sending = Keyed()

    def contribute(self, setup: ChildSetup) -> Undo:
        """`setup` composes every later activation of every child, after its own composition. The result undoes it."""
        return self._contributions.add(setup)

    # Who is there

    def resident(self, id: SessionId) -> Agent | None:
        """The agent of a child whose activation is open."""
        found = self._roster.get(id)
        return None if found is None or found.obstacle is not None else found.agent

    def stir(self, owner: Agent | None) -> None:
        """What the standing of `owner` depends on may have changed: its background work began or ended."""
        self._roster.stir(None if owner is None else owner.id)

    async def wait_quiet(self, agent: Agent) -> None:
        """The agent is idle, nothing is left that would start it, and nobody below it is at work.

        Somebody may be at work whose parent is at rest: a message from outside reaches any depth.
        """
        while True:
            changed = self._roster.changed
            await agent.wait_idle()
            is_settled = standing(self._supervisor.seen(agent)) == "settled"
            if agent.is_closing or (is_settled and not self._roster.has_below(agent.id)):
                return
            await changed.wait()

    async def wait_quiet_again(self, agent: Agent) -> None:
        """As `wait_quiet`, for an agent that was just resumed: its children that still owe work are here first."""
        await self._supervisor.bring_children(agent.id, self.authority.ancestry(agent)[1:])
        await self.wait_quiet(agent)

    async def wait_settled(self, id: SessionId) -> None:
        """No activation of the child is open in this process and none is about to be, or the host is going."""
        while self._roster.parent_of(id) is not None and not self._agents.is_suspending:
            await self._roster.changed.wait()

    # Starting

    async def start(self, provider_name: str, request: RunRequest) -> Accepted:
        """The child's mailbox durably holds the prompt, and the child runs.

        The same call again gets the first receipt. Cancelling before acceptance leaves nothing behind, and changes
        nothing after it. Raises: Draining, ActivationClosing, Unauthorized, NoProvider, UnsupportedCapability,
        DepthExceeded, DuplicateChild for a reserved id that is taken, and what building the child raises.
        """
        request = self._providers.inheriting(request)
        self.authority.check_admission(request.parent)
        provider = self._providers.continuable(provider_name, request)
        request = self._providers.adapted(provider_name, request)
        try:
            return await self._start(provider_name, provider, request)
        except DepthExceeded:
            if request.child_id is not None:
                await self._is_known(request.child_id, request)  # that it is taken comes before that it is too deep
            raise

    async def _start(self, provider_name: str, provider: ContinuableProvider, request: RunRequest) -> Accepted:
        child_depth(request)
        made = describe(request, provider_name, "continuable")
        id = child_id(request)
        arrival = self._roster.expect(id, self.authority.ancestry(request.parent))
        try:
            with arrival.scope:
                seed = await provider.prepare(request)  # first, so that what it copies is of this instant
                async with self._supervisor.locks.hold(id):
                    if await self._is_known(id, request):
                        self._supervisor.arrive(id, arrival.ancestry)
                    else:
                        resident = Resident(id=id, ancestry=arrival.ancestry, descriptor=made)
                        self.authority.check_admission(request.parent)
                        await self._create(request, resident, seed)
                return Accepted(child_id=id, message_id=prompt_id(id))
        finally:
            self._roster.arrived(arrival)
        raise Draining(f"the tree of {request.parent.id!r} is being drained; the child was not started")

    async def _is_known(self, id: SessionId, request: RunRequest) -> bool:
        """The same call has started the child before. Raises: DuplicateChild."""
        is_stored = self._agents.get(id) is not None or await self._host.sessions.store.summary(id) is not None
        if is_stored and request.child_id is not None:
            raise DuplicateChild(f"the id {id!r} is taken; reserve another one")
        return is_stored

    async def _create(self, request: RunRequest, resident: Resident, seed: Sequence[Event]) -> None:
        async def setup(agent: Agent) -> None:
            await self._supervisor.compose(agent, resident)
            self.authority.check_admission(request.parent)

        new = creation(request, resident.descriptor, id=resident.id, seed=seed, setup=setup)
        commit = new.commit

        def with_residency(tx: Transaction, agent: Agent) -> None:
            if commit is not None:
                commit(tx, agent)
            resident.epoch = 1
            self._roster.add(resident)  # before the child can run, so that nobody settles around it

        try:
            await self._agents.create(replace(new, commit=with_residency))
        except BaseException:
            self._roster.remove(resident)
            raise
        self._supervisor.begin(resident)

    # Following up

    async def send(
        self,
        parent: Agent,
        id: SessionId,
        content: str | tuple[InputBlock, ...],
        *,
        source: Source | None = None,
        message_id: MessageId | None = None,
    ) -> MessageId:
        """The message is the child's, durably, as a turn of its own; a child that had settled is resumed.

        Messages to one child keep the order of the calls. `message_id` makes sending repeatable. Cancelled before
        acceptance it leaves nothing behind. Raises: as `Authority.check_follow_up`; BadInput for an empty message;
        IdConflict.
        """
        blocks = (Text(content),) if isinstance(content, str) else content
        if not any(block.text.strip() if isinstance(block, Text) else True for block in blocks):
            raise BadInput("a message needs some text or an image")
        async with self._sending.hold(id):
            await self.authority.check_follow_up(parent, id)
            source = source or Source(kind="coordinator", form="relay", sender_session_id=parent.id)
            delivery = Delivery(
                session_id=id,
                message=UserMessage(message_id or new_message_id(), blocks, source),
                target="next-turn",
                wake=True,
                accepted_at=self._host.clock.now_ms(),
            )
            tx = self._host.sessions.transaction()
            self.follow_up(tx, parent, delivery)
            receipt = tx.submit()
        await receipt.wait()
        return delivery.id

    def follow_up(self, tx: Transaction, parent: Agent, delivery: Delivery) -> None:
        """The delivery is part of `tx`, and the child will be resident once that is committed.

        Call `Authority.check_follow_up` before. Raises: Unauthorized, Draining, ActivationClosing.
        """
        self.authority.check_admission(parent)
        tx.insert(delivery)
        self._supervisor.arrive(delivery.session_id, self.authority.ancestry(parent))

    def wake_parent(self, child: Agent) -> None:
        """The parent of `child` has a message from it: it comes back if it is a child itself and not here."""
        found = self._roster.get(child.id)
        if found is not None:
            self._supervisor.wake(found.parent_id, found.ancestry[1:])

    async def prepare(self, root: SessionId) -> None:
        """Children of the stored tree that shall not go on have ended, if that is what the host is configured for.

        Call it before the root is resumed. A tree that is live here is left alone. Raises: as `settle_interrupted`.
        """
        if self._host.options.on_interrupt == "settle" and self._agents.get(root) is None:
            await settle_interrupted(self._host, root)

    async def recover(self, root: Agent) -> None:
        """Every continuable child of the tree that owes work is resident again. See `Recovery`."""
        await self._recovery.recover(root)

    def arrived(self, delivery: Delivery) -> None:
        """Somebody else sent to a session that is not loaded. See `Recovery`."""
        self._recovery.arrived(delivery)

    # Stopping

    async def wait_here(self, id: SessionId, caller: Agent) -> None:
        """A descendant of `caller` that owes work is resident: after a crash its recovery may still be under way.

        Raises: StoreFailure.
        """
        if self._roster.parent_of(id) is None and self._agents.get(id) is None:
            ancestry = await self._recovery.ancestry(id)
            if caller.id not in ancestry or id not in await self._host.sessions.store.owing(caller.session.root):
                return
            self._supervisor.arrive(id, ancestry)
        await self._roster.wait_arrived(id)

    def interrupt(self, id: SessionId, caller: Agent | None) -> None:
        """The child's current turn ends as soon as it can; queued messages are parked and its own children go on.

        `caller` is a live ancestor, or None for the user. A child that is not resident is left alone. Raises:
        Unauthorized for a caller that is not a live ancestor.
        """
        resident = self.authority.interruptible(id, caller)
        if resident is not None:
            resident.agent.cancel(Cause("user" if caller is None else "parent"), keep_mailbox=True)

    def interrupt_order(self, id: SessionId, caller: Agent, order: MessageId) -> Delivery | None:
        """What interrupts the child's current turn, as `interrupt` does, once it is inserted; also after a crash.

        None for a child that is not at work here. Raises: as `interrupt`.
        """
        resident = self.authority.interruptible(id, caller)
        if resident is None:
            return None
        return Delivery(
            session_id=id,
            message=UserMessage(order, (), Source(kind="coordinator", form="relay", sender_session_id=caller.id)),
            target="next-step",
            wake=False,
            accepted_at=self._host.clock.now_ms(),
            kind="interrupt",
            log_length=resident.agent.session.next_seq,
        )

    def stop(self, event: StopAsked) -> None:
        """An agent is stopped with everything below it. See `Stops`."""
        self._stops.obey(event, self._roster, self._supervisor, self._recovery)

    def stopped(self, event: Stopped) -> None:
        """A stop is over: who waits for quiet looks again, and so does whoever was sent to meanwhile."""
        self._roster.stir(event.agent.id)
        self._host.sessions.look_afresh()

    async def stop_stored(self, id: SessionId, root: SessionId) -> None:
        """The stop that waits for a child whose tree nobody drives is over. Nobody else of the tree has started.

        Raises: SessionHeld, StoreFailure, ActivationTeardownFailed.
        """
        await self._host.sessions.hold(root)
        await self._recovery.bring_owing(root, id, inclusive=True)
        await self._drain(id, inclusive=True)

    async def drain_below(self, agent: Agent) -> None:
        """Nothing that the agent started is resident: cancelled top-down, released child-first, each settled.

        New starts, messages and reports below it are refused from now on, as long as it lives. Queues are parked, not
        withdrawn. Part of every disposal. For an agent that is not the registered one nothing happens. Raises:
        ActivationTeardownFailed, when all are gone, with everything that failed.
        """
        if not self._agents.is_live(agent) or self._agents.is_suspending:
            return
        resident = self._roster.get(agent.id)
        if resident is not None and resident.agent is agent and agent.is_closing:
            if resident.is_closing:
                return  # its supervisor takes it down: it has no children then, or is built again and keeps them
            self._supervisor.release(agent.id)
        self.authority.forbid_below(agent)
        await self._drain(agent.id, inclusive=False)

    async def release(self, parent: Agent, ids: Iterable[SessionId]) -> None:
        """Those direct children of `parent` are gone, and everybody below them, as after `drain_below`.

        A host that is going meanwhile ends the wait; they stay open in their logs and go on after a resume.
        Ids that are not resident are ignored. Raises: Unauthorized for a stale parent or another's child, before
        anything is done; ActivationTeardownFailed.
        """
        self.authority.check_live(parent)
        owners = {id: self._roster.parent_of(id) for id in ids}
        for id, owner in owners.items():
            if owner not in (None, parent.id):
                raise Unauthorized(f"agent {id!r} is no child of {parent.id!r}")
        for id in owners:
            self._supervisor.release(id)
        for id in owners:
            await self._drain(id, inclusive=True)

    async def drain(self) -> None:
        """Nothing is resident any more, and nothing starts any more. Raises: as `drain_below`."""
        self.authority.forbid_all()
        await self._drain(None, inclusive=True)

    async def _drain(self, id: SessionId | None, *, inclusive: bool) -> None:
        seen: dict[SessionId, Resident] = {}
        while True:
            changed = self._roster.changed
            residents, arrivals = self._supervisor.release(id, inclusive=inclusive)
            if (not residents and not arrivals) or self._agents.is_suspending:
                break
            seen.update((resident.id, resident) for resident in residents)
            await changed.wait()
        failures = [error for resident in seen.values() for error in resident.failures]
        if failures:
            details = "; ".join(dict.fromkeys(error_record(error)[1] for error in failures))
            raise ActivationTeardownFailed(f"children could not be taken down cleanly: {details}")


CONTINUATIONS: Seam[Continuations] = Seam("subagent.continuations")
"""Where the continuable children of a host are found."""
