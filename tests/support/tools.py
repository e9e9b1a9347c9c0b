"""Small tools that a test controls."""

from collections.abc import Callable

from retinue.testing.gate import Gate
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["echo", "gated", "tool_of"]


@tool(safe=True)
async def echo(words: str) -> str:
    """Repeat the words."""
    return words


def gated(name: str, gate: Gate, *, safe: bool = True, trace: list[str] | None = None, pooled: bool = True) -> Tool:
    """A tool that waits for the gate and notes in `trace` when its body begins and ends."""
    notes = trace if trace is not None else []

    async def body(words: str = "") -> str:
        """Wait for the gate."""
        notes.append(f"{words or name} begins")
        await gate.wait()
        notes.append(f"{words or name} ends")
        return words or name

    return tool(name=name, safe=safe, pooled=pooled)(body)


def tool_of(name: str, answer: Callable[[ToolContext], ToolResult], *, safe: bool = True) -> Tool:
    """A tool whose result is made by `answer`."""

    async def body(ctx: ToolContext) -> ToolResult:
        """Answer."""
        return answer(ctx)

    return tool(name=name, safe=safe)(body)
