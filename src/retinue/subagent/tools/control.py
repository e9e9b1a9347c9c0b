"""The tools with which a parent messages and interrupts its children."""

from __future__ import annotations

import re
from typing import Annotated

from retinue.agent.agent import Agent
from retinue.base.ids import MessageId, SessionId, derived_id
from retinue.errors import ToolFailure
from retinue.host.host import Host
from retinue.model.content import Source, Text, UserMessage
from retinue.session.rows import Delivery
from retinue.session.transaction import Transaction
from retinue.subagent.continuation import Continuations
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["interrupt_tool", "send_message_tool"]

_TASK_ID = re.compile(r"[a-z]+-\d{1,6}")

_SEND = (
    "Send a message to an agent that you started. It becomes that agent's next turn: it waits behind a turn that is "
    "running, cannot redirect it, and returns no answer; what the agent makes of it comes as a report or a notice. An "
    "agent that had settled is resumed with its whole conversation. If the call fails, the message was not delivered."
)
_INTERRUPT = (
    "Ask an agent that you started, or one further down, to stop its current turn. Only the current turn stops: "
    "messages queued for it stay parked until the next send_message, agents that it started keep running, and it stays "
    "available for more. For an agent that has already finished this does nothing."
)


def send_message_tool(host: Host, continuations: Continuations) -> Tool:
    """`send_message`. Exclusive, so it keeps its place among the calls of a step."""

    @tool(name="send_message", description=_SEND, effect="rows")
    async def send_message(
        ctx: ToolContext,
        subagent_id: Annotated[str, "The agent's id, as the call that started it returned it."],
        message: Annotated[str, "What it shall do or know."],
    ) -> ToolResult:
        """Queue a message as a child's next turn."""
        parent = _caller(ctx)
        if not message.strip():
            raise ToolFailure("INVALID_ARGS", "message: must say something; it is empty")
        child = SessionId(subagent_id.strip())
        await continuations.authority.check_follow_up(parent, child)
        id = MessageId(derived_id("msg", *ctx.key.parts))
        source = Source(kind="coordinator", form="relay", sender_session_id=parent.id)
        delivery = Delivery(
            session_id=child,
            message=UserMessage(id, (Text(message),), source),
            target="next-turn",
            wake=True,
            accepted_at=host.clock.now_ms(),
        )
        return ToolResult(
            content=(Text(f"Message {id} is queued as the next turn of {child}. No answer comes from this call."),),
            value={"message_id": id},
            meta={"message_id": id, "subagent_id": child},
            writes=lambda tx: continuations.follow_up(tx, parent, delivery),
        )

    return send_message


def interrupt_tool(continuations: Continuations) -> Tool:
    """`interrupt_agent`. Exclusive."""

    @tool(name="interrupt_agent", description=_INTERRUPT, effect="rows")
    async def interrupt_agent(
        ctx: ToolContext, agent_id: Annotated[str, "The id of the agent whose turn shall stop."]
    ) -> ToolResult:
        """Stop an agent's current turn."""
        id, caller = SessionId(agent_id.strip()), _caller(ctx)
        await continuations.wait_here(id, caller)
        order = continuations.interrupt_order(id, caller, MessageId(derived_id("interrupt", *ctx.key.parts)))
        child = continuations.resident(id)
        if child is not None:
            is_own = child.session.header.parent_session == caller.id
            told = "Its notice says how it ended." if is_own else "The agent that started it is told how it ended."
            text = f"Agent {id} was asked to stop its current turn. {told}"
        elif _TASK_ID.fullmatch(id):
            text = f"{id} is a background task, not an agent; nothing was stopped. Use task_kill for it."
        else:
            text = f"No agent {id} is at work, so there is nothing to stop."
        return ToolResult(
            content=(Text(text),),
            value={"accepted": True},
            meta={"subagent_id": id},
            writes=None if order is None else lambda tx: _insert(tx, order),
        )

    return interrupt_agent


def _insert(tx: Transaction, order: Delivery) -> None:
    tx.insert(order)


def _caller(ctx: ToolContext) -> Agent:
    if not isinstance(ctx.caller, Agent):
        raise ToolFailure("NO_CALLER", f"{ctx.name} can only be called by an agent")
    return ctx.caller
