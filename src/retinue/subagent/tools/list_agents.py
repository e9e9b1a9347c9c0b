"""`list_agents`: a snapshot of whom the caller has started."""

from __future__ import annotations

from typing import Annotated, Literal

from retinue.agent.agent import Agent
from retinue.errors import ToolFailure
from retinue.host.host import Host
from retinue.subagent.continuation import Continuations
from retinue.subagent.listing import entry_objects, list_children, render_entries
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["list_agents_tool"]

_DESCRIPTION = (
    "List the agents that you started and that can be messaged, with their state. It is a snapshot and promises "
    "nothing: an agent may have moved on when you read it. Do not use it to wait for anybody; you are told when an "
    "agent settles. Agents at depth 1 are yours to message; deeper ones you can only interrupt."
)


def list_agents_tool(host: Host, continuations: Continuations) -> Tool:
    """The tool. It loads, resumes and wakes nobody."""

    @tool(name="list_agents", description=_DESCRIPTION, safe=True, effect="rows")
    async def list_agents(
        ctx: ToolContext,
        scope: Annotated[
            Literal["children", "descendants"], "Direct children only (default), or everybody below you."
        ] = "children",
    ) -> ToolResult:
        """List the agents the caller started."""
        if not isinstance(ctx.caller, Agent):
            raise ToolFailure("NO_CALLER", "list_agents can only be called by an agent")
        entries = await list_children(host, continuations, ctx.caller.id, scope=scope)
        return ToolResult.text(render_entries(entries, scope=scope), value=entry_objects(entries, scope=scope))

    return list_agents
