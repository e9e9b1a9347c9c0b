"""The tool calls of one step: scheduled, logged as they end, and given an answer after a crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from msgspec import Struct

from retinue.agent.phase import Running
from retinue.agent.signals import CallOutput
from retinue.base.ids import MessageId, derived_id
from retinue.base.json import JSONObject
from retinue.errors import RetinueError, ToolFailure, error_record
from retinue.model.content import Source, Text, ToolCall, ToolMessage, UserMessage
from retinue.session.events import ErrorRecord, ToolReturned, ToolStart
from retinue.session.folds import OpenStep
from retinue.session.repair import missing_result
from retinue.session.rows import Delivery
from retinue.session.transaction import Transaction
from retinue.tools.arguments import parse_arguments
from retinue.tools.pipeline import run_call
from retinue.tools.schedule import Ready, run_in_order
from retinue.tools.tool import CallKey, Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = ["NOT_DISPATCHED", "recover_calls", "result_event", "run_calls"]


class _Call(Struct, frozen=True):
    index: int
    call: ToolCall
    context: ToolContext


def result_event(turn: int, step: int, index: int, call_id: str, result: ToolResult) -> ToolReturned:
    """The `tool/result` that logs `result`."""
    error = None
    if result.is_error:
        text = "".join(block.text for block in result.content if isinstance(block, Text))
        error = ErrorRecord(result.code or "UNKNOWN", text.removeprefix("Error: "))
    return ToolReturned(
        turn=turn,
        step=step,
        index=index,
        message=ToolMessage(call_id, result.content, result.is_error),
        error=error,
        concludes=result.concludes,
        meta=result.meta or None,
    )


async def run_calls(agent: Agent, run: Running, turn: int, step: OpenStep) -> None:
    """Every call that had no result has one, logged.

    Cancelled: running bodies were cancelled and awaited; those that had started have a result if the turn was aborted
    through `run`, and the rest is the caller's. Raises: the failure of the session, if a batch was refused.
    """
    calls = [_call(agent, turn, step, index) for index in step.missing]
    asked = agent.environment.sessions.writer.submitted
    await run_in_order(
        calls,
        is_safe=lambda call: _is_safe(agent, call),
        is_pooled=lambda call: (tool := agent.tools.get(call.call.name)) is None or tool.pooled,
        run=lambda call, ready: _run(agent, run, call, ready, asked=asked),
        width=agent.environment.width,
    )


def _call(agent: Agent, turn: int, step: OpenStep, index: int) -> _Call:
    call = step.calls[index]
    key = CallKey(session_id=agent.id, seq=step.reply_seq, index=index)
    context = ToolContext(
        caller=agent,
        key=key,
        name=call.name,
        call_id=call.id,
        turn=turn,
        step=step.number,
        tell=_teller(agent, key) if agent.bus.wants(CallOutput) else None,
    )
    return _Call(index, call, context)


def _teller(agent: Agent, key: CallKey) -> Callable[[str], None]:
    def tell(text: str) -> None:
        agent.bus.publish(CallOutput(agent, key, text))

    return tell


def _is_safe(agent: Agent, call: _Call) -> bool:
    tool = agent.tools.get(call.call.name)
    if tool is None:
        return True
    try:
        arguments: JSONObject = parse_arguments(call.call.arguments)
        return tool.is_safe(arguments)
    except Exception:
        return False


async def _run(agent: Agent, run: Running, call: _Call, ready: Ready, *, asked: int) -> None:
    """`asked` counts the batches up to the one with the message that asked for the call."""
    sessions = agent.environment.sessions
    has_begun = False

    async def before_body(tool: Tool) -> None:
        nonlocal has_begun
        if run.cause is not None:
            await anyio.lowlevel.checkpoint_if_cancelled()
        if tool.effect == "outside":
            context = call.context
            tx = agent.transaction()
            tx.append(
                agent.session,
                ToolStart(
                    turn=context.turn, step=context.step, index=call.index, call_id=context.call_id, name=context.name
                ),
            )
            tx.submit()
            await sessions.writer.durable()
        else:
            # Its whole effect is rows, which are stored after the request for them, whatever else is under way.
            await sessions.writer.committed(asked)
        agent.session.check()
        if tool.effect == "outside":
            await sessions.confirm(agent.session.hold)
        ready()
        has_begun = True

    tool = agent.tools.get(call.call.name)
    try:
        result = await run_call(
            call.context,
            call.call.arguments,
            resolve=agent.tools.get,
            chain=agent.chains.tool_call,
            before_body=before_body,
        )
        result = await agent.environment.finish(tool, call.context, result)
    except anyio.get_cancelled_exc_class():
        if run.cause is not None and agent.session.failure is None:
            _log(agent, call, _aborted(call) if has_begun else NOT_DISPATCHED)
        raise
    except ToolFailure as error:
        result = ToolResult.error(error.name, str(error))
    if run.cause is not None and not result.is_error:
        result = replace(_aborted(call), meta=result.meta, writes=result.writes)
    _log(agent, call, result)


NOT_DISPATCHED = ToolResult.error("ABORTED_BEFORE_DISPATCH", "the turn ended before this call started")


def _aborted(call: _Call) -> ToolResult:
    made = f"; it had already made {', '.join(call.context.created)}" if call.context.created else ""
    return ToolResult.error("ABORTED", f"the turn was aborted while this call ran{made}")


def _log(agent: Agent, call: _Call, result: ToolResult) -> None:
    tx = agent.transaction()
    try:
        _add_result(tx, agent, call, result)
    except RetinueError as error:  # what it would write is not allowed any more, so the call has failed
        tx = agent.transaction()
        _add_result(tx, agent, call, ToolResult.error(*error_record(error)))
    tx.submit()


def _add_result(tx: Transaction, agent: Agent, call: _Call, result: ToolResult) -> None:
    context = call.context
    tx.append(agent.session, result_event(context.turn, context.step, call.index, context.call_id, result))
    if result.writes is not None:
        result.writes(tx)
    for number, text in enumerate(result.context):
        id = MessageId(derived_id("note", *context.key.parts, number))
        tx.insert(_note(agent, id, text))


def _note(agent: Agent, id: MessageId, text: str) -> Delivery:
    message = UserMessage(id, (Text(text),), Source(kind="runtime", form="notice"))
    return Delivery(
        session_id=agent.id,
        message=message,
        target="next-step",
        wake=False,
        accepted_at=agent.environment.sessions.clock.now_ms(),
    )


def recover_calls(agent: Agent, turn: int, step: OpenStep) -> None:
    """Calls whose process ended have an answer. Those whose whole effect is rows are left to run again, and those that
    were held are left to run at all: nothing of them has begun.

    Where an effect is unknown, a note for the next step says so, in the same batch. Source: behaviour SE-26.
    """
    unknown: list[str] = []
    tx = agent.transaction()
    for index in step.missing:
        call = _call(agent, turn, step, index)
        tool = agent.tools.get(call.call.name)
        if step.is_held(index) or (tool is not None and tool.effect == "rows"):
            continue
        if index in step.started:
            unknown.append(call.call.name)
        tx.append(agent.session, missing_result(turn, step, index))
    if unknown:
        names = ", ".join(unknown)
        id = MessageId(derived_id("recovery", agent.id, step.reply_seq))
        tx.insert(
            _note(
                agent,
                id,
                f"The process that ran you ended while these calls ran: {names}. Their effect is unknown: look at what "
                "is there before you repeat them.",
            )
        )
    tx.submit()
