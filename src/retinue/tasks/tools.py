"""The tools through which a model collects, lists and stops its background tasks, whatever their kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.base.json import JSON
from retinue.errors import BadInput, NotFound, ToolFailure, error_record
from retinue.tasks.record import TaskSnapshot
from retinue.tasks.runtime import Tasks
from retinue.tasks.wording import error_text, kill_text, list_text, read_text, task_object
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["DEFAULT_WAIT_MS", "MAX_WAIT_MS", "TOOL_NAMES", "can_collect", "task_tools"]

DEFAULT_WAIT_MS = 30_000
MAX_WAIT_MS = 600_000
"""Longer waits are cut to this. Source: behaviour TT-04."""
TOOL_NAMES = ("task_output", "task_list", "task_kill")

_FOR_AGENTS = (
    ("list_agents", "shows where it stands"),
    ("send_message", "gives it more to do"),
    ("interrupt_agent", "stops its current turn"),
)
_AGENT_IDS = ("agent-", "session-")
_ERROR_PREFIX = len(b"Error: ")


def can_collect(owner: Agent | None) -> bool:
    """The owner can see what it needs for its tasks. One that is gone sees nothing, and is refused for that instead."""
    return (
        owner is None
        or owner.is_closing
        or all(owner.tools.get(name) is not None for name in ("task_output", "task_kill"))
    )


def task_tools(tasks: Tasks, *, default_wait_ms: int = DEFAULT_WAIT_MS) -> list[Tool]:
    """`task_output`, `task_list` and `task_kill`. Raises: BadInput for a default wait outside 1 to 600000 ms.

    All they do is to look at or stop work that lives in this process, so after a crash the calls are made again.
    """
    if not 1 <= default_wait_ms <= MAX_WAIT_MS:
        raise BadInput(f"default_wait_ms must be from 1 to {MAX_WAIT_MS}, not {default_wait_ms}")

    @tool(safe=True, effect="rows", pooled=False)
    async def task_output(
        ctx: ToolContext,
        task_id: Annotated[str, Meta(description="The id that the call which started the task gave you.")],
        wait: Annotated[bool, Meta(description="Wait until it has ended. Only when you cannot go on without.")] = False,
        timeout_ms: Annotated[
            int, Meta(ge=1, description="How long to wait at most, in milliseconds; 600000 is the most.")
        ] = default_wait_ms,
    ) -> ToolResult:
        """Read a background task: what is new since the last read, or the final output of a task that does not stream.

        Returns at once unless `wait` is set. A wait that runs out is no error: it shows the task as it is by then. A
        notice comes by itself when a task ends, so there is no need to call this again and again.
        """

        async def read(caller: SessionId | None) -> ToolResult:
            if wait:
                await tasks.wait(task_id, caller, min(timeout_ms, MAX_WAIT_MS) / 1000)
            got = tasks.read(task_id, caller)
            text = read_text(got)
            return ToolResult.text(text, value={"text": text, "task": task_object(got.task)})

        return await _about(tasks, ctx, task_id, read)

    @tool(safe=True, effect="rows", pooled=False)
    async def task_list(ctx: ToolContext) -> ToolResult:
        """List your background tasks with their status, oldest first."""
        found = tasks.list(_caller(ctx))
        shown: list[JSON] = [task_object(task) for task in found]
        return ToolResult.text(list_text(found), value={"tasks": shown})

    @tool(safe=True, effect="rows", pooled=False)
    async def task_kill(
        ctx: ToolContext,
        task_id: Annotated[str, Meta(description="The id that the call which started the task gave you.")],
        reason: Annotated[str | None, Meta(description="Why it is not needed any more, in a few words.")] = None,
    ) -> ToolResult:
        """Ask a background task to stop. Returns at once; the task is gone when its status says `killed`."""

        async def kill(caller: SessionId | None) -> ToolResult:
            answer, task = tasks.kill(task_id, caller, reason)
            return ToolResult.text(kill_text(answer, task), value={"outcome": answer, "task": task_object(task)})

        return await _about(tasks, ctx, task_id, kill)

    return [task_output, task_list, task_kill]


def _caller(ctx: ToolContext) -> SessionId | None:
    return None if ctx.caller is None else ctx.caller.id


async def _about(
    tasks: Tasks, ctx: ToolContext, task_id: str, act: Callable[[SessionId | None], Awaitable[ToolResult]]
) -> ToolResult:
    """What `act` answers, or an error that keeps within the task's limit."""
    task = _named(tasks, ctx, task_id)
    try:
        return await act(_caller(ctx))
    except Exception as error:
        code, message = error_record(error)
        return ToolResult.error(code, error_text(message, task, _ERROR_PREFIX))


def _named(tasks: Tasks, ctx: ToolContext, task_id: str) -> TaskSnapshot:
    """The task. Raises: ToolFailure for an id of something else, which says what it is and which tools take it."""
    if not task_id.strip():
        raise ToolFailure("INVALID_ARGS", "task_id: must name a background task; it is empty")
    try:
        return tasks.get(task_id, _caller(ctx))
    except NotFound as error:
        if task_id.startswith(_AGENT_IDS):
            raise ToolFailure("NOT_A_TASK", _no_task(ctx, task_id)) from error
        known = ", ".join(task.id for task in tasks.list(_caller(ctx))) or "none"
        raise ToolFailure(error.code, f"{error}; your tasks: {known}") from error


def _no_task(ctx: ToolContext, id: str) -> str:
    visible = ctx.caller.tools if isinstance(ctx.caller, Agent) else None
    hints = [f"`{name}` {what}" for name, what in _FOR_AGENTS if visible is not None and visible.get(name) is not None]
    said = f"{id!r} is an agent, not a background task; you are told by itself when it settles"
    return f"{said}. For agents: {', '.join(hints)}." if hints else said
