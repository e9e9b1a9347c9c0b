"""A list of what is to be done, kept by the model for itself and shown to whoever watches: the tool `todo`.

The list is what the newest call said; nothing else is kept. Its result carries the items as `value`, so that front ends
can show them as a plan.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from msgspec import Meta, Struct, to_builtins

from retinue.errors import ToolFailure
from retinue.host.host import Host
from retinue.prompt.sections import Section
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolResult

__all__ = ["OPTIONS", "TodoConfig", "TodoItem", "plugin", "todo_tool"]

_ORDER = 108.0
_MARKS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}


class TodoConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nothing can be configured."""


OPTIONS = TodoConfig


class TodoItem(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do."""

    content: Annotated[str, Meta(min_length=1, max_length=500, description="What is to be done, as an order.")]
    status: Literal["pending", "in_progress", "completed"]


@asynccontextmanager
async def plugin(host: Host, config: TodoConfig) -> AsyncGenerator[None]:
    """The tool and its guidance are there."""
    with (
        host.tools.add(todo_tool()),
        host.prompt.add(Section(name="tool:todo", order=_ORDER, text=_GUIDANCE, tool="todo")),
    ):
        yield


def todo_tool() -> Tool:
    """`todo`, which replaces the whole list."""

    @tool
    async def todo(
        items: Annotated[
            list[TodoItem], "The whole list, in order. It replaces the earlier one.", Meta(max_length=100)
        ],
    ) -> ToolResult:
        """Write down what is to be done and how far you are. At most one item is in progress at a time."""
        active = [item.content for item in items if item.status == "in_progress"]
        if len(active) > 1:
            raise ToolFailure("INVALID_ARGS", f"items: only one can be in progress, got {len(active)}: {active}")
        done = sum(item.status == "completed" for item in items)
        lines = [f"{_MARKS[item.status]} {item.content}" for item in items]
        text = "\n".join([f"{done} of {len(items)} done", *lines]) if items else "The list is empty."
        value = to_builtins(items)
        return ToolResult.text(text, value=value, meta={"todo": value})

    return todo


_GUIDANCE = """\
Keep a list with `todo` when a task has three or more steps that are easy to lose sight of. Mark an item as in \
progress when you begin it and as completed as soon as it is done, and take in what you find on the way. A task of one \
step needs no list."""
