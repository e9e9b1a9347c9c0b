"""How one call runs: arguments, tool, chain, body, one result. Whatever goes wrong becomes an error result.

Cancellation leaves as what it is, and so does the outage of the store under a call whose whole effect is rows: it had
none, and can be made again. The pipeline logs nothing: its caller does, with `before_body` and the result.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.lowlevel
from msgspec import Struct

from retinue.base.chain import Chain
from retinue.base.json import JSONObject
from retinue.errors import RetinueError, error_record, is_outage
from retinue.tools.arguments import parse_arguments
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["Resolve", "ToolCallChain", "ToolRequest", "reraise_if_cancelled", "run_call"]


class ToolRequest(Struct, frozen=True, kw_only=True):
    """One call on its way through the `tool_call` chain. A layer may pass it on with other arguments, answer it
    itself (a denial is `ToolResult.error`), or change the result on the way back."""

    tool: Tool
    arguments: JSONObject
    context: ToolContext


ToolCallChain: TypeAlias = Chain[ToolRequest, ToolResult]
Resolve: TypeAlias = Callable[[str], Tool | None]


async def run_call(
    context: ToolContext,
    raw_arguments: str,
    *,
    resolve: Resolve,
    chain: ToolCallChain,
    before_body: Callable[[Tool], Awaitable[None]],
) -> ToolResult:
    """The call's one result; errors of tool, arguments and layers included.

    `before_body` runs right before the body and is the last point at which the call may still be refused. Raises only
    what `before_body` raises, cancellation, and a StoreFailure that is an outage, for a call whose effect is rows.
    """
    tool = resolve(context.name)
    if tool is None:
        return ToolResult.error("UNKNOWN_TOOL", f"there is no tool {context.name!r} here; use one of the listed tools")
    crossed: list[BaseException] = []

    async def inner(request: ToolRequest) -> ToolResult:
        try:
            await before_body(request.tool)
        except BaseException as error:
            crossed.append(error)
            raise
        return await _run_body(request)

    try:
        arguments = parse_arguments(raw_arguments)
        tool.validate(arguments)
        return await chain.run(ToolRequest(tool=tool, arguments=arguments, context=context), inner)
    except Exception as error:
        if (crossed and error is crossed[0]) or _is_undone(tool, error):
            raise
        return _failure(context.name, error)


async def _run_body(request: ToolRequest) -> ToolResult:
    tool = request.tool
    try:
        if tool.timeout_s is None:
            return await tool.body(request.context, request.arguments)
        with anyio.move_on_after(tool.timeout_s):
            return await tool.body(request.context, request.arguments)
    except Exception as error:
        if _is_undone(tool, error):
            raise
        return _failure(request.context.name, error)
    except SystemExit as error:  # a tool may not end the process
        return ToolResult.error("TOOL_FAILED", f"{request.context.name} tried to end the process ({error})")
    except anyio.get_cancelled_exc_class():
        await reraise_if_cancelled()
        return ToolResult.error("TOOL_FAILED", f"{request.context.name} cancelled itself and gave no result")
    return ToolResult.error("TIMEOUT", f"{request.context.name} took longer than {_seconds(tool.timeout_s)}; stopped")


async def reraise_if_cancelled() -> None:
    """Raise the cancellation again if the caller really is cancelled; return if a body let out one of its own."""
    await anyio.lowlevel.checkpoint_if_cancelled()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _is_undone(tool: Tool, error: Exception) -> bool:
    return tool.effect == "rows" and is_outage(error)


def _failure(name: str, error: Exception) -> ToolResult:
    code, message = error_record(error)
    if not isinstance(error, RetinueError):
        message = f"{name} failed: {message}"
    return ToolResult.error(code, message)


def _seconds(value: float) -> str:
    return f"{math.floor(value)} s" if value >= 1 else f"{value:g} s"
