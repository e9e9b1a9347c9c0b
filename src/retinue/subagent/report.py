"""What a continuable child says to its parent: the `report` tool and its section, which only the child has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Literal, TypeAlias
from weakref import WeakKeyDictionary

from retinue.agent.agent import Agent
from retinue.base.ids import MessageId, derived_id
from retinue.errors import ParentUnavailable, ToolFailure, Unauthorized
from retinue.host.host import Host
from retinue.prompt.sections import Section
from retinue.session.rows import Delivery
from retinue.session.transaction import Transaction
from retinue.subagent.continuation import Continuations
from retinue.subagent.notice import report_message
from retinue.subagent.words import bounded_words
from retinue.tools.function import tool
from retinue.tools.output import spill_path
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["REPORT_ORDER", "ReportDelivery", "install_report", "report_tool"]

ReportDelivery: TypeAlias = Literal["next-step", "quiet"]

REPORT_ORDER = 117.0
"""Source: behaviour CP-01."""

_SECTION = (
    "You work for another agent, which started you. Deliver your result to it with `report` before you finish: once, "
    "and self-contained. It shares your workspace, but it does not see this conversation, the output of your tools or "
    "your reasoning, so a bare closing remark is of no use to it. Report earlier as well when you find something that "
    "changes what it should do next. Reporting does not end your turn."
)
_DESCRIPTION = (
    "Send a message to the agent that started you. Before you finish, deliver one self-contained final report with it: "
    "what you found or did, where, and what remains open. Only that agent, your direct parent, receives it. It may be "
    "called earlier and more than once. If a call fails, the content may have arrived all the same, so think before "
    "you send it twice."
)


def install_report(agent: Agent, report: Tool) -> Callable[[], None]:
    """The child has the tool and the section; a failure to add one takes the other back.

    The result takes both back, and tries both before it raises.
    """
    with ExitStack() as stack:
        stack.enter_context(agent.prompt.add(Section(name="tool:report", order=REPORT_ORDER, text=_SECTION)))
        stack.enter_context(agent.tools.add(report))
        return stack.pop_all().close


def report_tool(host: Host, continuations: Continuations, *, delivery: ReportDelivery, per_turn: int) -> Tool:
    """`report`, which serves every child of the host; `install_report` gives it to one."""
    sent: WeakKeyDictionary[Agent, tuple[int, int]] = WeakKeyDictionary()
    """The turn in which a child reported last, and how often it did."""

    @tool(name="report", description=_DESCRIPTION, effect="rows")
    async def report(ctx: ToolContext, output: Annotated[str, "The whole message, complete in itself."]) -> ToolResult:
        """Send a message to the parent."""
        child = ctx.caller
        if not isinstance(child, Agent) or continuations.resident(child.id) is not child:
            raise Unauthorized("only the child itself, while it is resident, may report")
        if not output.strip():
            raise ToolFailure("INVALID_ARGS", "output: must say something; it is empty")
        continuations.authority.check_open(child, "nothing is reported any more")
        parent = child.session.header.parent_session
        if parent is None or await host.sessions.store.summary(parent) is None:
            raise ParentUnavailable("the agent that started you does not exist any more; nobody would read the report")
        home = host.options.home
        words = await bounded_words(output, None if home is None else spill_path(home / "spill", ctx.key))
        turn, count = sent.get(child, (ctx.turn, 0))
        count = count + 1 if turn == ctx.turn else 1
        sent[child] = ctx.turn, count
        is_quiet = delivery == "quiet" or count > per_turn
        id = MessageId(derived_id("report", *ctx.key.parts))

        def write(tx: Transaction) -> None:
            tx.insert(
                Delivery(
                    session_id=parent,
                    message=report_message(id, child.id, child.label or None, words),
                    target="next-step",
                    wake=not is_quiet,
                    accepted_at=host.clock.now_ms(),
                )
            )
            if not is_quiet:
                continuations.wake_parent(child)

        note = " It is read with the next step; further reports of this turn wake nobody." if count > per_turn else ""
        return ToolResult(
            content=ToolResult.text(f"Reported as message {id}.{note}").content,
            value={"message_id": id},
            meta={"message_id": id},
            writes=write,
        )

    return report
