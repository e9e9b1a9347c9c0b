"""Tools of somebody's own, which scenarios name."""

from __future__ import annotations

from retinue.agent.agent import Agent
from retinue.agent.signals import StatusChanged
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


@tool
async def grumble(ctx: ToolContext) -> str:
    """Fail later, where nobody waits for it."""
    assert isinstance(ctx.caller, Agent)

    def fail(_: StatusChanged) -> None:
        raise ValueError("out of tune")

    ctx.caller.bus.on(StatusChanged, fail)
    return "hm"
