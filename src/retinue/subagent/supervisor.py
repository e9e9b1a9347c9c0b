"""Drives activations: brings children back, settles each activation once, builds again what has more to do.

Every resident child has one supervisor task. It is a boundary: whatever goes wrong with a child becomes its ending, or
leaves its activation open for recovery, and never reaches another child or the host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from retinue.agent.agent import Agent
from retinue.agent.control import heed_at_rest
from retinue.agent.phase import Cause, Idle
from retinue.agent.signals import MessageClaimed, MessageDiscarded, StatusChanged
from retinue.base.bus import Bus
from retinue.base.ids import SessionId
from retinue.errors import (
    ActivationTeardownFailed,
    NotQuiet,
    RetinueError,
    SessionHeld,
    StoreFailure,
    error_record,
)
from retinue.host.host import Host
from retinue.session.events import DESCRIPTOR_VERSION, ActivationStart
from retinue.session.folds import descriptor
from retinue.session.session import Session
from retinue.subagent.activation import Residency, activation_outcome, standing
from retinue.subagent.child import composition
from retinue.subagent.contributions import Contributions
from retinue.subagent.lifecycle import SubagentEnded, SubagentStarted
from retinue.subagent.outcome import Outcome
from retinue.subagent.owing import owing_children
from retinue.subagent.resident import Keyed, Resident
from retinue.subagent.roster import Arrival, Roster
from retinue.subagent.settlement import add_settlement
from retinue.subagent.words import bounded_blocks, closing_path

__all__ = ["REFUSAL_LIMIT", "LiveTasks", "Supervisor"]

_log = logging.getLogger("retinue")

REFUSAL_LIMIT = 3
"""A settlement that was refused so often while the log did not grow is left to recovery."""

LiveTasks = Callable[[Agent], int]
"""How many background tasks of an agent have not ended."""


class Supervisor:
    """The activations of one host, from the moment their agents are built."""

    def __init__(
        self,
        host: Host,
        roster: Roster,
        contributions: Contributions,
        *,
        live_tasks: LiveTasks,
        is_draining: Callable[[Agent], bool],
        is_stopping: Callable[[Resident], bool],
    ) -> None:
        self._host = host
        self._agents = host.agents
        self._roster = roster
        self._contributions = contributions
        self._live_tasks = live_tasks
        self._is_draining = is_draining
        self._is_stopping = is_stopping
        self.locks = Keyed()
        """Building a child and taking it down exclude each other, by the child's id."""
        self.dead_runs: set[SessionId] = set()
        """One-shot children that nobody waits for since their process ended: nothing goes on below them."""

    def seen(self, agent: Agent) -> Residency:
        """What an agent's standing depends on, now."""
        return Residency(
            is_running=not isinstance(agent.phase, Idle),
            is_runnable=agent.session.mailbox.is_runnable,
            open_children=self._roster.open_children(agent.id),
            live_tasks=self._live_tasks(agent),
        )

    # Building

    async def compose(self, agent: Agent, resident: Resident) -> None:
        """The agent is what its descriptor and the deployment make of it, and its supervisor hears of its changes."""
        resident.agent = agent
        await composition(resident.descriptor)(agent)
        await self._contributions.install(agent, resident.descriptor)
        agent.bus.on(StatusChanged, lambda _: self._roster.stir(agent.id))
        agent.bus.on(MessageClaimed, lambda _: self._roster.stir(agent.id))
        agent.bus.on(MessageDiscarded, lambda event: self._discarded(resident, event))

    def _discarded(self, resident: Resident, event: MessageDiscarded) -> None:
        if event.row.delivery.wake and event.reason != "replaced":
            resident.dropped_at = resident.agent.session.next_seq
        self._roster.stir(resident.id)

    def begin(self, resident: Resident) -> None:
        """The child, which is in the roster and whose agent is live, is supervised from here on."""
        self._bus(resident.parent_id).publish(
            SubagentStarted(
                run_id=resident.run_id,
                provider=resident.descriptor.provider,
                id=resident.id,
                parent=resident.parent_id,
                local=True,
            )
        )
        self._host.start(partial(self._supervise, resident))

    def _bus(self, id: SessionId) -> Bus:
        live = self._agents.get(id)
        return live.bus if live is not None else self._host.bus

    def arrive(self, id: SessionId, ancestry: tuple[SessionId, ...]) -> Arrival:
        """The child is on its way: it is resident soon if it owes work, and leaves the roster again if not."""
        arrival = self._roster.expect(id, ancestry)
        self._host.start(partial(self.bring_back, arrival))
        return arrival

    async def bring_back(self, arrival: Arrival) -> None:
        """The child runs if it has something to run. A failure to build it becomes its settlement."""
        try:
            await self._host.sessions.writer.committed()
            if self._agents.get(arrival.parent_id) is None:
                await self._roster.wait_arrived(arrival.parent_id)  # it may say that nobody below it goes on
            async with self.locks.hold(arrival.id):
                if self._roster.get(arrival.id) is None and self._agents.get(arrival.id) is None:
                    await self._load(arrival)
        except Exception as error:
            _log.warning("child %s stays as it is until its tree is resumed: %s", arrival.id, error_record(error)[1])
        finally:
            self._roster.arrived(arrival)

    async def _load(self, arrival: Arrival) -> None:
        session = await self._host.sessions.load(arrival.id)
        made = descriptor(session.header, session.events)
        owes_work = session.turns.activation is not None or session.mailbox.is_runnable
        is_usable = made is not None and made.mode == "continuable" and made.version == DESCRIPTOR_VERSION
        if made is None or not is_usable or not owes_work:
            if session.mailbox.all_controls:
                tx = self._host.sessions.transaction()
                heed_at_rest(tx, session)
                tx.submit()
            self._unload(session.id)
            return
        resident = Resident(id=arrival.id, ancestry=arrival.ancestry, descriptor=made)
        await self._build(resident)
        self._roster.add(resident)
        self.begin(resident)
        if resident.obstacle is not None or self._must_go(resident):
            self.release(resident.id)

    def _must_go(self, resident: Resident) -> bool:
        """It is being stopped, or somebody above it is gone, or is being taken down, for good."""
        if self._is_stopping(resident) or self.dead_runs.intersection(resident.ancestry):
            return True
        above = [self._roster.get(id) for id in resident.ancestry]
        lives = [self._agents.get(id) for id in resident.ancestry]
        return any(one is not None and one.is_released for one in above) or any(
            live is not None and self._is_draining(live) for live in lives
        )

    async def _build(self, resident: Resident) -> None:
        """A new agent drives the activation. If its composition fails, that is kept as the obstacle.

        Raises: StoreFailure, SessionHeld.
        """
        session = await self._host.sessions.load(resident.id)
        if session.turns.activation is None:
            tx = self._host.sessions.transaction()
            tx.append(session, ActivationStart(session.turns.epochs + 1))
            tx.submit()
        resident.epoch = session.turns.epochs
        try:
            await self._agents.resume(resident.id, setup=lambda agent: self.compose(agent, resident))
        except (StoreFailure, SessionHeld):
            raise
        except Exception as error:
            _log.warning("child %s could not be built: %s", resident.id, error_record(error)[1])
            resident.obstacle = error

    # Ending

    def release(self, id: SessionId | None, *, inclusive: bool = True) -> tuple[list[Resident], list[Arrival]]:
        """The child (unless not `inclusive`) and all below it stop now and end; None = everybody.

        Children end before parents and each is settled; queues are parked, or withdrawn by a stop. What is being
        created is cancelled. The answer is who is not gone yet.
        """
        residents, arrivals = self._roster.at_or_below(id)
        if not inclusive:
            residents = [one for one in residents if one.id != id]
            arrivals = [one for one in arrivals if one.id != id]
        for one in residents:
            if not one.is_released:
                one.is_released = True
                if one.obstacle is None:
                    one.agent.close_admission()
                    self._cut_off(one)
                one.stir()
        for arrival in arrivals:
            arrival.scope.cancel()
        return residents, arrivals

    def _cut_off(self, resident: Resident) -> None:
        agent, is_stopping = resident.agent, self._is_stopping(resident)
        if not is_stopping:
            agent.cancel(Cause("parent"), keep_mailbox=True)
        elif not agent.session.mailbox.is_stopping:  # else its own row stops it, and what was sent after that stays
            agent.cancel(Cause("user"))
        if is_stopping:
            resident.dropped_at = agent.session.next_seq

    async def _supervise(self, resident: Resident) -> None:
        try:
            await self._until_over(resident)
        finally:
            self._roster.stir(resident.id)  # also when the host is going: nobody waits for what nobody does

    async def _until_over(self, resident: Resident) -> None:
        while not resident.is_over and not self._agents.is_suspending:
            changed = resident.changed
            if self._may_close(resident):
                try:
                    await self._close(resident)
                except Exception:
                    _log.exception("child %s stays unsettled until its tree is resumed", resident.id)
                    resident.is_unsettled = True
                    self._leave(resident)
            elif resident.obstacle is None and not isinstance(resident.agent.phase, Idle):
                await resident.agent.wait_idle()  # the end of maintenance is no change of status
            else:
                await changed.wait()

    def _may_close(self, resident: Resident) -> bool:
        if resident.is_released:
            return not self._roster.open_children(resident.id)
        return resident.agent.failure is not None or standing(self.seen(resident.agent)) == "settled"

    async def _close(self, resident: Resident) -> None:
        """The activation is settled and its agent gone; or it goes on, since something had arrived."""
        async with self.locks.hold(resident.id):
            if resident.is_over or not self._may_close(resident):
                return

            async def last(session: Session, failure: Exception | None) -> None:
                if failure is not None:
                    resident.failures.append(failure)
                await self._settle(resident, session)

            resident.is_closing = True
            if resident.obstacle is None:
                await self._agents.dispose(resident.agent, last=last)
            if not resident.is_over:
                await self._go_on(resident)
            resident.is_closing = False
            if resident.is_over:
                self._leave(resident)

    async def _settle(self, resident: Resident, session: Session) -> None:
        """The activation is settled, unless the child owes work or the store refuses."""
        if session.turns.open is not None or session.turns.activation is None:
            return
        is_known = await self._is_known(resident.parent_id)
        outcome = self._outcome(resident, session)
        path = closing_path(self._host.options.home, session.id, session.turns.activation.epoch)
        words = await bounded_blocks(outcome.output, path)
        if session.failure is not None or (session.mailbox.is_runnable and not resident.is_released):
            return  # asked last, since what arrives later than this is for the store to refuse
        parent = self._agents.get(resident.parent_id)
        tx = self._host.sessions.transaction()
        add_settlement(
            tx,
            session,
            resident.descriptor,
            outcome,
            words,
            is_busy=parent is not None and parent.status == "running",
            is_quiet=self._is_going(parent) if parent is not None else resident.parent_id in self.dead_runs,
            is_delivered=is_known,
            parks=resident.is_released,
            now_ms=self._host.clock.now_ms(),
        )
        try:
            await tx.submit().wait()
        except NotQuiet:
            return
        except RetinueError as error:
            _log.warning("the settlement of child %s was refused: %s", resident.id, error)
            return
        resident.outcome = outcome

    def _is_going(self, parent: Agent) -> bool:
        return parent.is_closing or self._is_draining(parent)

    async def _is_known(self, id: SessionId) -> bool:
        """The session exists; one that cannot be looked up is believed to."""
        if self._agents.get(id) is not None:
            return True
        try:
            return await self._host.sessions.store.summary(id) is not None
        except RetinueError:
            return True

    def _outcome(self, resident: Resident, session: Session) -> Outcome:
        activation = session.turns.activation
        assert activation is not None
        came_to = activation_outcome(
            session.events, first=activation.seq, dropped=resident.dropped_after(session.events)
        )
        if resident.obstacle is not None:
            code, message = error_record(resident.obstacle)
            return Outcome(ending="error", diagnostic=f"{code}: {message}", usage=came_to.usage)
        if resident.failures:
            details = "; ".join(error_record(error)[1] for error in resident.failures)
            return Outcome(
                ending="error", diagnostic=f"{ActivationTeardownFailed.code}: {details}", usage=came_to.usage
            )
        return came_to

    async def _go_on(self, resident: Resident) -> None:
        """Its agent is gone and it is not settled: it is built again, or, to be released, settled without an agent."""
        try:
            summary = await self._host.sessions.store.summary(resident.id)
            if resident.refused(summary.events if summary is not None else 0) > REFUSAL_LIMIT:
                cause = resident.agent.failure
                raise StoreFailure(str(cause) if cause is not None else "its settlement was refused again and again")
            if not resident.is_released:
                await self.bring_children(resident.id, resident.ancestry)
                await self._build(resident)
                if resident.obstacle is not None:
                    self.release(resident.id)
            elif not self._roster.open_children(resident.id):
                await self._end_turn(resident)
                await self._settle(resident, await self._host.sessions.load(resident.id))
                self._unload(resident.id)
        except (StoreFailure, SessionHeld) as error:
            _log.warning("child %s stays unsettled until its tree is resumed: %s", resident.id, error)
            resident.is_unsettled = True
        resident.stir()

    async def bring_children(self, id: SessionId, ancestry: tuple[SessionId, ...]) -> None:
        """Children of `id` that owe work and that nobody drives here are on their way: it is not quiet without them."""
        for child in await owing_children(self._host.sessions.store, id):
            if self._roster.parent_of(child) is None and self._agents.get(child) is None:
                self.arrive(child, (id, *ancestry))

    async def _end_turn(self, resident: Resident) -> None:
        """No turn of the child is open. It is closed by an agent that is stopped before it does anything."""
        session = await self._host.sessions.load(resident.id)
        if session.turns.open is None:
            return
        agent = await self._agents.resume(resident.id)
        agent.close_admission()
        agent.cancel(Cause("parent"), keep_mailbox=True)
        await self._agents.dispose(agent)

    def _unload(self, id: SessionId) -> None:
        session = self._host.sessions.live(id)
        if session is not None and session.driver is None:
            self._host.sessions.unload(session)

    def _leave(self, resident: Resident) -> None:
        above = self._roster.get(resident.parent_id)
        if above is not None and above.is_released:
            above.failures.extend(resident.failures)
        self._roster.remove(resident)
        resident.stir()
        if resident.outcome is None:
            return
        self._bus(resident.parent_id).publish(
            SubagentEnded(
                run_id=resident.run_id,
                provider=resident.descriptor.provider,
                id=resident.id,
                parent=resident.parent_id,
                local=True,
                outcome=resident.outcome.ending,
                last_message=resident.outcome.text,
            )
        )
        self.wake(resident.parent_id, resident.ancestry[1:])

    def wake(self, id: SessionId, ancestry: tuple[SessionId, ...]) -> None:
        """A continuable agent that is not here has got a message: it comes back, if its tree is here and stays.

        A root is never loaded by this; it finds the message when somebody resumes it.
        """
        root = self._agents.get(ancestry[-1]) if ancestry else None
        if root is None or root.is_closing or self._is_draining(root) or self._agents.get(id) is not None:
            return
        self.arrive(id, ancestry)
