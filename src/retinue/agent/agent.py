"""The agent: the live driver of one session. At most one per session and process; the tree's lease guards the rest.

It owns the phase, decides what a delivery wakes, runs turns one after the other, and ends in an awaited disposal. It
has no state that matters: everything about it is a fold of its session's log and mailbox.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
from msgspec.structs import replace

from retinue.agent.control import heed, stoppable
from retinue.agent.conversation import Conversation
from retinue.agent.environment import AgentOptions, Environment
from retinue.agent.loop import run_turn
from retinue.agent.phase import Cause, Idle, Maintenance, Opening, Phase, Running
from retinue.agent.signals import AgentFailed, MessageDiscarded, MessageInserted, StatusChanged, Stopped
from retinue.base.bus import Bus
from retinue.base.ids import MessageId, SessionId, new_message_id
from retinue.errors import AgentBusy, AgentClosing, BadInput, DriverFailed, RetinueError
from retinue.model.content import USER, AssistantMessage, InputBlock, Source, Text, UserMessage
from retinue.session.mailbox import PendingRow, is_instruction
from retinue.session.rows import Delivery, Target
from retinue.session.session import Session
from retinue.session.transaction import Receipt, Transaction
from retinue.tools.pipeline import reraise_if_cancelled

__all__ = ["Agent", "Sent"]

T = TypeVar("T")
_log = logging.getLogger("retinue")


class Sent:
    """A message on its way. Awaiting it gives the id once the message is durable; not awaiting it loses nothing."""

    __slots__ = ("_id", "_receipt")

    def __init__(self, id: MessageId, receipt: Receipt) -> None:
        self._id = id
        self._receipt = receipt

    async def wait(self) -> MessageId:
        """The durable message's id. Shielded. Raises: IdConflict, StoreFailure."""
        await self._receipt.wait()
        return self._id

    def __await__(self) -> Generator[Any, None, MessageId]:
        return self.wait().__await__()


class Agent:
    """Create it through `Agents`. All methods that are not `async` take effect before they return."""

    def __init__(self, environment: Environment, session: Session, options: AgentOptions, *, label: str = "") -> None:
        self.environment = environment
        self.session = session
        self.options = options
        self.label = label
        self.cwd = Path(session.header.cwd) if session.header.cwd is not None else environment.cwd
        """Absolute working folder."""
        self.tools = environment.tools.child()
        self.prompt = environment.prompt.child()
        self.chains = environment.chains.child()
        self.bus = Bus(environment.bus)
        self.scope = AsyncExitStack()
        """What ends with the agent; closed in reverse order when it is disposed."""
        self.conversation = Conversation()
        self.failure: RetinueError | None = None
        """Why the agent stopped for good, if it did."""
        self.disposal_failure: Exception | None = None
        """What its disposal failed with, once that is over."""
        self._phase: Phase = Opening()
        self._closing = False
        self._at_rest = anyio.Event()
        session.driver = self

    @property
    def id(self) -> SessionId:
        """The session's id; the agent has no other."""
        return self.session.id

    @property
    def depth(self) -> int:
        """0 for a root, one more with each delegation."""
        return self.session.header.delegation_depth

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        return self._phase

    @property
    def status(self) -> Literal["idle", "running"]:
        """The public status; maintenance counts as idle."""
        return "running" if isinstance(self._phase, Running) else "idle"

    @property
    def is_closing(self) -> bool:
        """It is being disposed, or has failed for good."""
        return self._closing

    @property
    def last_text(self) -> str:
        """The newest visible text of the model in this session, or an empty string."""
        for message in reversed(self.session.history.messages):
            if isinstance(message, AssistantMessage) and message.text:
                return message.text
        return ""

    def transaction(self) -> Transaction:
        """A new empty transaction of this agent's store."""
        return self.environment.sessions.transaction()

    # Sending

    def send(
        self,
        content: str | Sequence[InputBlock],
        *,
        target: Target = "next-turn",
        wake: bool = True,
        source: Source = USER,
        id: MessageId | None = None,
        prepend: bool = False,
    ) -> Sent:
        """The message has its place in the mailbox, and a waking one to an idle agent has started it.

        `id` makes sending repeatable: the same id with the same content again changes nothing. Raises: AgentClosing,
        AgentBusy for an agent whose session is not created yet, BadInput for empty content, and the failure of a
        dropped session; nothing is changed then. A clash of ids or a failing store shows when the result is awaited.
        """
        if self._closing:
            raise self.failure or AgentClosing(f"agent {self.id!r} is being closed and takes no messages")
        if self.session.failure is not None:
            raise self.session.failure
        if self.environment.sessions.live(self.id) is not self.session:
            if isinstance(self._phase, Opening):
                raise AgentBusy(f"agent {self.id!r} is being created; what it shall begin with belongs to its commit")
            raise AgentClosing(f"agent {self.id!r} takes no messages: its host is closed")
        blocks = (Text(content),) if isinstance(content, str) else tuple(content)
        if not any(block.text.strip() if isinstance(block, Text) else True for block in blocks):
            raise BadInput("a message needs some text or an image")
        delivery = Delivery(
            session_id=self.id,
            message=UserMessage(id or new_message_id(), blocks, source),
            target=target,
            wake=wake,
            accepted_at=self.environment.sessions.clock.now_ms(),
        )
        tx = self.transaction()
        tx.insert(delivery, prepend=prepend)
        return Sent(delivery.id, tx.submit())

    def follow_up(self, content: str | Sequence[InputBlock], *, source: Source = USER) -> Sent:
        """A turn of its own, and it wakes. See `send`."""
        return self.send(content, source=source)

    def steer(self, content: str | Sequence[InputBlock], *, source: Source = USER) -> Sent:
        """Part of the next step, and it wakes. See `send`."""
        return self.send(content, target="next-step", source=source)

    def inject(self, content: str | Sequence[InputBlock], *, source: Source = USER) -> Sent:
        """Part of the next step, whenever that comes; it never wakes. See `send`."""
        return self.send(content, target="next-step", wake=False, source=source)

    def withdraw(self, id: MessageId, reason: str = "withdrawn") -> bool:
        """The message will never be read; False if it was not pending any more."""
        if self.session.mailbox.get(id) is None:
            return False
        tx = self.transaction()
        tx.withdraw(self.session, (id,), reason)
        tx.submit()
        return True

    def replace(self, old: MessageId, content: str | Sequence[InputBlock]) -> Sent | None:
        """New content in the place of a pending message; None if it was not pending any more."""
        row = self.session.mailbox.get(old)
        if row is None:
            return None
        blocks = (Text(content),) if isinstance(content, str) else tuple(content)
        message = UserMessage(new_message_id(), blocks, row.delivery.message.source)
        tx = self.transaction()
        tx.replace(self.session, old, replace(row.delivery, message=message))
        return Sent(message.id, tx.submit())

    # Stopping

    def cancel(
        self, cause: Cause | None = None, *, keep_mailbox: bool = False, before: PendingRow | None = None
    ) -> None:
        """The current activity ends as soon as it can; on an idle agent nothing is aborted.

        Without `keep_mailbox` pending messages of users and parents are withdrawn, and the rest waits quietly for the
        next turn. With it they are parked when the turn has ended. What was sent later than `before` is not withdrawn.
        The first cause wins. Source: behaviour IN-33..38.
        """
        phase = self._phase
        try:
            if not keep_mailbox and self.session.failure is None:
                self._clear(before)
        finally:
            if not keep_mailbox and not isinstance(phase, Idle):
                phase.wake = False
            if not keep_mailbox and isinstance(phase, Running):
                phase.resumes = False
            if isinstance(phase, Running | Maintenance):
                phase.cancel(cause or Cause("user"))

    def _clear(self, before: PendingRow | None) -> None:
        tx = self.transaction()
        tx.withdraw(self.session, [row.id for row in stoppable(self.session, before)], "stopped")
        self._hush(tx)
        tx.submit()

    def _hush(self, tx: Transaction) -> None:
        mailbox = self.session.mailbox
        rows = (*mailbox.next_step, *mailbox.next_turn)
        tx.hush(self.session, [row for row in rows if not is_instruction(row.delivery) and row.delivery.wake])

    def stopped(self) -> None:
        """A stop is over: its rows are answered, and what came meanwhile starts a turn if a user or the parent sent it.

        Part of obeying a stop. Raises: the failure of a dropped session; then the rows stay as they are.
        """
        if self.session.mailbox.is_stopping and self.environment.sessions.live(self.id) is self.session:
            tx = self.transaction()
            self._hush(tx)
            tx.answer(self.session, "stop", self.session.turns.last)
            tx.submit()
            if isinstance(self._phase, Idle) and self.session.mailbox.is_runnable:
                self._wake()
        self.bus.publish(Stopped(self))

    async def wait_idle(self) -> None:
        """No turn and no maintenance is active, also none that began meanwhile. Identifies no particular message."""
        while not isinstance(self._phase, Idle):
            await self._at_rest.wait()

    async def run_maintenance(self, work: Callable[[], Awaitable[T]]) -> T:
        """`work` ran while no turn did; what it returns or raises is passed on.

        Raises: AgentBusy, before anything is done, unless the agent is idle. `cancel` cancels the work: then
        AgentClosing or AgentBusy is raised in its place. Messages sent meanwhile are stored; the agent starts
        afterwards if something is still pending.
        """
        if not isinstance(self._phase, Idle) or self._closing:
            raise AgentBusy(f"agent {self.id!r} is {self.status}; maintenance needs an idle agent")
        phase = Maintenance()
        self._enter(phase)
        try:
            with phase.scope:
                return await work()
        finally:
            self._rest(wake=phase.wake)
        raise AgentBusy(f"maintenance of agent {self.id!r} was cancelled")

    # Phases

    def _enter(self, phase: Phase) -> None:
        before, self._phase = self.status, phase
        if isinstance(phase, Idle):
            self._at_rest.set()
        elif self._at_rest.is_set():
            self._at_rest = anyio.Event()
        if self.status != before:
            self.bus.publish(StatusChanged(self, self.status))

    def _rest(self, *, wake: bool) -> None:
        """Idle is published, then what is pending is looked at again, so that no wake is lost in between."""
        self._enter(Idle())
        if isinstance(self._phase, Idle):
            mailbox = self.session.mailbox
            if mailbox.is_runnable or (wake and mailbox.has_input):
                self._wake()

    def open(self) -> None:
        """The agent is published: it may run, and does if its session owes work."""
        phase = self._phase
        assert isinstance(phase, Opening)
        controls = self.session.mailbox.all_controls
        if self.session.turns.open is not None:
            self._enter(Idle())
            self._wake()
            heed(self, controls)  # before the turn that goes on can do anything
        else:
            heed(self, controls)
            self._rest(wake=phase.wake)

    def _wake(self) -> None:
        if self._closing or self.session.failure is not None:
            return
        if self.session.mailbox.is_stopping and self.session.turns.open is None:
            return
        self._enter(Running())
        self.environment.start(self._drive)

    async def _drive(self) -> None:
        """Turns, one after the other, until nothing may run. The boundary where a failure becomes a value."""
        try:
            while True:
                run = self._phase
                assert isinstance(run, Running)
                end = await run_turn(self, run)
                mailbox = self.session.mailbox
                goes_on = end.reason not in ("aborted", "error") and mailbox.has_input
                if self._closing or mailbox.is_stopping:
                    break
                if not (goes_on or mailbox.is_runnable or (run.wake and mailbox.has_input)):
                    break
                self._phase = Running()
        except RetinueError as error:
            self._fail(error)
        except Exception as error:
            _log.exception("the driver of agent %s failed", self.id)
            failure = DriverFailed(f"the driver of agent {self.id!r} failed: {error}")
            failure.__cause__ = error
            self._fail(failure)
        except anyio.get_cancelled_exc_class():
            # The host is going: the turn stays open in the log and goes on after the next resume.
            self._closing = True
            self._enter(Idle())
            await reraise_if_cancelled()
            self._fail(DriverFailed(f"agent {self.id!r} was cut off by a layer that let out a cancellation of its own"))
        if self._closing:
            self._enter(Idle())
        else:
            self._rest(wake=False)

    def _fail(self, error: RetinueError) -> None:
        self.failure = error
        self._closing = True
        turn = self.session.turns.open
        self.bus.publish(AgentFailed(self, turn.number if turn else 0, turn.steps if turn else 0, error))

    # Driver of the session: called by transactions

    def admit(self, delivery: Delivery) -> Delivery:
        """A waking message to an aborted turn waits for a turn of its own. Source: behaviour IN-28."""
        phase = self._phase
        if delivery.wake and isinstance(phase, Running) and phase.cause is not None:
            return replace(delivery, target="next-turn")
        return delivery

    def delivered(self, delivery: Delivery) -> None:
        """The delivery is in the mailbox: listeners know, and the agent runs if it should. A control row is obeyed."""
        if delivery.is_control:
            row = self.session.mailbox.get(delivery.id)
            heed(self, () if row is None else (row,))
            return
        phase = self._phase
        was_aborted = isinstance(phase, Running) and phase.cause is not None
        self.bus.publish(MessageInserted(self, delivery))
        if not delivery.wake or self._closing or self._phase is not phase:
            return
        if isinstance(phase, Idle):
            self._wake()
        elif was_aborted or isinstance(phase, Opening | Maintenance):
            phase.wake = True
            if isinstance(phase, Running):
                phase.resumes = phase.resumes or is_instruction(delivery)

    def discarded(self, rows: Sequence[PendingRow], reason: str) -> None:
        """Listeners know that these rows will never be read."""
        for row in rows:
            if not row.delivery.is_control:
                self.bus.publish(MessageDiscarded(self, row, reason))

    def failed(self, error: RetinueError) -> None:
        """The session was dropped: what runs is stopped and nothing more is written."""
        if isinstance(self._phase, Running | Maintenance):
            self._phase.cancel(Cause("store", error.code))
        else:
            self._fail(error)

    # The end

    def close_admission(self) -> None:
        """Nothing is taken any more and no turn starts."""
        self._closing = True

    async def unwind(self) -> None:
        """Nothing runs, and everything registered for this agent is gone. Part of disposal; see `Agents.dispose`."""
        self.close_admission()
        self.cancel(Cause("disposed"), keep_mailbox=True)
        if isinstance(self._phase, Opening):
            self._enter(Idle())
        await self.wait_idle()
        try:
            await self.scope.aclose()
        finally:
            self.tools.close()
            self.prompt.close()
