"""A tool of somebody's own, which a scenario names: it gives its agent another tool."""

from __future__ import annotations

from retinue.agent.agent import Agent
from retinue.tools.function import tool
from retinue.tools.tool import ToolContext


@tool(safe=True)
async def sing() -> str:
    """Sing a shanty."""
    return "heave ho"


@tool
async def learn(ctx: ToolContext) -> str:
    """Learn to sing."""
    assert isinstance(ctx.caller, Agent)
    ctx.caller.tools.add(sing)
    return "learnt"


@tool(safe=True)
async def count(ctx: ToolContext, things: str) -> str:
    """Count things in the folder."""
    assert ctx.caller is not None
    return f"There are {len(list(ctx.caller.cwd.glob(f'{things}*')))} {things} in {ctx.caller.cwd}."
