"""One turn of an agent: take input, ask the model, run its calls, until nothing is owed.

The loop owns the order of events in a log and nothing else. What it does next is always read from the fold of the log,
so going on with a turn that another process began is the same code. It never names a feature: those wrap its chains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.agent.calls import NOT_DISPATCHED, recover_calls, result_event, run_calls
from retinue.agent.environment import PreStep, Reject, StepInput, TurnStopping
from retinue.agent.phase import Cause, Running
from retinue.agent.request import Exchange, ask
from retinue.agent.signals import AgentFailed, MessageClaimed
from retinue.errors import ModelError, NoProgress, error_record, is_outage
from retinue.session.events import (
    AssistantReply,
    ErrorRecord,
    Payload,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from retinue.session.folds import OpenStep, OpenTurn
from retinue.session.mailbox import PendingRow
from retinue.tools.tool import ToolResult

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = ["RESUME_LIMIT", "run_turn"]

RESUME_LIMIT = 3
"""A turn that was resumed this often without finishing a step ends as `error`. Source: architecture, section 3."""


async def run_turn(agent: Agent, run: Running) -> TurnEnd:
    """One turn ran to its end, which is logged; an open turn of the log is gone on with.

    Model failures and failing layers end the turn as `error`, an abort through `run` as `aborted`; both leave every
    call with a result and the step and the turn closed. Raises: the failure of the session if a batch was refused, and
    any outage of the store: nothing more is written then, and the turn stays open. Cancelled from outside `run`: the
    log stays as it is and the turn stays open.
    """
    turn = _Turn(agent, run)
    end: TurnEnd | None = None
    try:
        with run.scope:
            if run.cause is None:
                end = await turn.drive()
    except Exception as error:
        if agent.session.failure is not None:
            raise agent.session.failure from error
        if is_outage(error):
            raise
        end = turn.failed(error)
        if run.cause is not None:  # what fails while it is being stopped is a part of being stopped
            end = None
    if end is None:
        end = turn.aborted(run.cause or Cause("user"))
    turn.close(end)
    return end


class _Turn:
    """The turn that runs now. `rows` are reserved and not claimed yet."""

    def __init__(self, agent: Agent, run: Running) -> None:
        self.agent = agent
        self.run = run
        self.session = agent.session
        self.rows: tuple[PendingRow, ...] = ()
        self.exchange = Exchange()

    @property
    def open(self) -> OpenTurn | None:
        return self.session.turns.open

    @property
    def number(self) -> int:
        return self.open.number if self.open is not None else self.session.turns.last + 1

    def log(self, *payloads: Payload) -> None:
        tx = self.agent.transaction()
        tx.append(self.session, *payloads)
        tx.submit()

    async def drive(self) -> TurnEnd:
        """Steps until the turn owes nothing; the answer is its end, not logged yet."""
        if self.open is not None:
            await self.resume(self.open)
        while True:
            if self.open is None or self.open.step is None:
                end = await self.enter()
                if end is not None:
                    return end
            assert self.open is not None
            assert self.open.step is not None
            step = self.open.step
            if step.reply is None:
                await self.ask(step)
            if step.missing:
                await run_calls(self.agent, self.run, self.number, step)
            self.log(StepEnd(self.number, step.number))

    async def resume(self, turn: OpenTurn) -> None:
        """The log says that the turn goes on, and calls cut off by the end of a process have an answer."""
        count = turn.resumed + 1
        self.log(TurnResumed(turn.number, count))
        await self.agent.environment.sessions.writer.committed()
        if count >= RESUME_LIMIT and not self.waits_for_others(turn):
            raise NoProgress(
                f"turn {turn.number} was resumed {count} times and finished no step; send a message to go on anyway"
            )
        if turn.step is not None and turn.step.missing:
            recover_calls(self.agent, turn.number, turn.step)

    def waits_for_others(self, turn: OpenTurn) -> bool:
        """A call is open that progresses elsewhere and ends by itself: its whole effect is rows, or it is held."""
        step = turn.step
        if step is None:
            return False
        tools = self.agent.tools
        return any(
            step.is_held(i) or ((tool := tools.get(step.calls[i].name)) is not None and tool.effect == "rows")
            for i in step.missing
        )

    async def enter(self) -> TurnEnd | None:
        """A step is open and its input logged; or the end of the turn, if nothing is owed."""
        turn = self.open
        is_owed = False
        if self.run.cause is not None:
            return self.aborted(self.run.cause)
        await self.settle()
        if turn is None:
            self.rows = self.session.mailbox.choose_for_turn()
            if not self.rows:
                return self.natural_end()
        elif turn.refused:
            return TurnEnd(turn=turn.number, reason="blocked", cause="model", detail="the model declined to answer")
        else:
            is_owed = turn.owes_step and not turn.concluded
            self.rows = self.session.mailbox.choose_for_step()
            if not is_owed and not self.rows and not await self.continues(turn):
                return self.natural_end()
        step = turn.steps + 1 if turn is not None else 1
        entered = await self.pre_step(step)
        if isinstance(entered, Reject):
            return TurnEnd(turn=self.number, reason="blocked", cause="hook", detail=entered.reason)
        if not entered and not is_owed:
            return self.natural_end()
        tx = self.agent.transaction()
        tx.claim(self.session, self.rows, self.number)
        starts = () if turn is not None else (TurnStart(self.number),)
        tx.append(self.session, *starts, StepStart(self.number, step), *entered)
        rows, self.rows = self.rows, ()
        tx.submit()
        self.published(rows)
        return None

    async def settle(self) -> None:
        """What is pending is stored: a message that was sent before, or clashes, has left the mailbox again."""
        mailbox = self.session.mailbox
        if any(row.order is None for row in (*mailbox.next_step, *mailbox.next_turn)):
            await self.agent.environment.sessions.writer.committed()

    async def continues(self, turn: OpenTurn) -> bool:
        """The turn is about to stop; True if somebody gave it more input while told so."""
        await self.agent.chains.turn_stopping.run(TurnStopping(agent=self.agent, turn=turn.number), _nothing)
        await self.settle()
        self.rows = self.session.mailbox.choose_for_step()
        return bool(self.rows)

    async def pre_step(self, step: int) -> PreStep:
        messages = tuple(row.delivery.message for row in self.rows)
        request = StepInput(agent=self.agent, turn=self.number, step=step, messages=messages)
        return await self.agent.chains.pre_step.run(request, _enter)

    def natural_end(self) -> TurnEnd:
        is_truncated = self.open is not None and self.open.truncated
        return TurnEnd(turn=self.number, reason="max-tokens" if is_truncated else "completed")

    async def ask(self, step: OpenStep) -> None:
        """The model's reply is logged."""
        self.exchange.reset()
        await ask(self.agent, self.number, step.number, self.exchange)
        self.log(self.reply(step, interrupted=False))

    def reply(self, step: OpenStep, *, interrupted: bool) -> AssistantReply:
        came = self.exchange.reply
        finish = came.finish
        return AssistantReply(
            turn=self.number,
            step=step.number,
            message=came.message(),
            usage=came.usage,
            finish=finish if finish in ("length", "content-filter") else None,
            interrupted=interrupted,
            sent=self.exchange.sent,
        )

    def published(self, rows: tuple[PendingRow, ...]) -> None:
        for row in rows:
            self.agent.bus.publish(MessageClaimed(self.agent, row.delivery, self.number))

    def failed(self, error: Exception) -> TurnEnd:
        code, message = error_record(error)
        step = self.open.steps if self.open is not None else 0
        self.agent.bus.publish(AgentFailed(self.agent, self.number, step, error))
        record = ErrorRecord(code, message)
        if isinstance(error, ModelError):
            record = ErrorRecord(code, message, error.status, error.retry_after_s)
        return TurnEnd(turn=self.number, reason="error", error=record)

    def aborted(self, cause: Cause) -> TurnEnd:
        return TurnEnd(turn=self.number, reason="aborted", cause=cause.kind, detail=cause.detail)

    def close(self, end: TurnEnd) -> None:
        """The end is logged in one batch with everything that it leaves behind."""
        tx = self.agent.transaction()
        payloads: list[Payload] = []
        turn = self.open
        tx.claim(self.session, self.rows, self.number)
        if turn is None:
            payloads.append(TurnStart(self.number))
        elif turn.step is not None:
            payloads.extend(self.rest_of_step(turn.step))
        tx.answer(self.session, "interrupt", self.number)
        if end.reason in ("aborted", "error") and not self.run.resumes:
            end = _with_parked(end, tx.park(self.session))
        tx.append(self.session, *payloads, end)
        rows, self.rows = self.rows, ()
        tx.submit()
        self.published(rows)

    def rest_of_step(self, step: OpenStep) -> list[Payload]:
        """What a step needs to be closed after an abort or a failure."""
        payloads: list[Payload] = []
        calls = step.calls
        unanswered = self.exchange.sent if step.reply is None else None
        if step.reply is None and self.exchange.reply.has_content:
            payloads.append(self.reply(step, interrupted=True))
            unanswered = None
        is_resumed = self.open is not None and self.open.resumed > 0
        for index in step.missing:
            tool = self.agent.tools.get(calls[index].name)
            may_have_run = index in step.started or (is_resumed and tool is not None and tool.effect == "rows")
            result = (
                ToolResult.error("TOOL_OUTCOME_UNKNOWN", "it is not known whether this call had an effect")
                if may_have_run
                else NOT_DISPATCHED
            )
            payloads.append(result_event(self.number, step.number, index, calls[index].id, result))
        payloads.append(StepEnd(self.number, step.number, unanswered))
        return payloads


def _with_parked(end: TurnEnd, parked: int) -> TurnEnd:
    return TurnEnd(turn=end.turn, reason=end.reason, cause=end.cause, detail=end.detail, error=end.error, parked=parked)


async def _enter(request: StepInput) -> PreStep:
    return request.messages


async def _nothing(_: TurnStopping) -> None:
    pass
