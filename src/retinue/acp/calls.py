"""How a tool call looks to somebody who watches: its kind, its title, the files it is about, what it changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from retinue.acp.types import (
    CommonContent,
    DiffContent,
    ImageBlock,
    Location,
    Plan,
    PlanEntry,
    TextBlock,
    ToolCallAsked,
    ToolCallChanged,
    ToolCallStarted,
    ToolContent,
    ToolKind,
)
from retinue.base.json import JSON, JSONObject
from retinue.errors import ToolFailure
from retinue.host.approvals import Question
from retinue.model.content import Block, Image, Text, ToolCall
from retinue.session.events import ToolReturned
from retinue.tools.arguments import parse_arguments

__all__ = ["call_asked", "call_id", "call_returned", "call_started", "plan_of", "shown"]

_KINDS: Mapping[str, ToolKind] = MappingProxyType(
    {
        "read": "read",
        "mcp_read": "read",
        "mcp_resources": "read",
        "skill": "read",
        "task_output": "read",
        "write": "edit",
        "edit": "edit",
        "glob": "search",
        "grep": "search",
        "bash": "execute",
        "todo": "think",
        "web_fetch": "fetch",
    }
)
_SUBJECTS = ("description", "command", "path", "pattern", "url", "name", "uri", "to", "id")
"""Arguments that say best what a call is about, the first that is there."""
_TITLE_CHARS = 120


def call_id(seq: int, index: int) -> str:
    """The id of a call within its session: its place in the log, since ids of models may repeat."""
    return f"call-{seq}-{index}"


def call_started(seq: int, index: int, call: ToolCall, cwd: Path) -> ToolCallStarted:
    """The call as it is asked for."""
    arguments = _arguments(call)
    path = _path(arguments.get("path"), cwd)
    return ToolCallStarted(
        tool_call_id=call_id(seq, index),
        title=_title(call.name, arguments),
        name=call.name,
        kind=_KINDS.get(call.name, "other"),
        content=_change(call.name, arguments, path),
        locations=() if path is None else (Location(path=path),),
        raw_input=arguments,
    )


def call_asked(id: str, question: Question, cwd: Path, *, by: str = "") -> ToolCallAsked:
    """The call that somebody shall decide about; `by` says which child asks, if the client cannot see that."""
    path = _path(question.arguments.get("path"), cwd)
    title = _title(question.tool, question.arguments)
    return ToolCallAsked(
        tool_call_id=id,
        title=f"{by}: {title}" if by else title,
        name=question.tool,
        kind=_KINDS.get(question.tool, "other"),
        content=_change(question.tool, question.arguments, path),
        locations=() if path is None else (Location(path=path),),
        raw_input=question.arguments,
    )


def call_returned(seq: int, call: ToolCall, returned: ToolReturned, cwd: Path) -> ToolCallChanged:
    """What the call came to. A change that was made stays as it is shown; everything else shows its result."""
    is_error = returned.message.is_error
    arguments = _arguments(call)
    change = () if is_error else _change(call.name, arguments, _path(arguments.get("path"), cwd))
    real = (returned.meta or {}).get("path")
    return ToolCallChanged(
        tool_call_id=call_id(seq, returned.index),
        status="failed" if is_error else "completed",
        content=change or tuple(CommonContent(content=block) for block in shown(returned.message.content)),
        locations=(Location(path=real),) if isinstance(real, str) and os.path.isabs(real) else None,
    )


def plan_of(returned: ToolReturned) -> Plan | None:
    """The plan, if the call wrote one down."""
    items = (returned.meta or {}).get("todo")
    if not isinstance(items, list):
        return None
    entries: list[PlanEntry] = []
    for item in items:
        match item:
            case {"content": str(content), "status": "pending" | "in_progress" | "completed" as status}:
                entries.append(PlanEntry(content=content, priority="medium", status=status))
            case _:
                return None
    return Plan(entries=tuple(entries))


def shown(blocks: tuple[Block, ...]) -> tuple[TextBlock | ImageBlock, ...]:
    """Text and images; nothing else is for people."""
    found: list[TextBlock | ImageBlock] = []
    for block in blocks:
        if isinstance(block, Text) and block.text:
            found.append(TextBlock(text=block.text))
        elif isinstance(block, Image):
            found.append(ImageBlock(data=block.data, mime_type=block.media_type))
    return tuple(found)


def _arguments(call: ToolCall) -> JSONObject:
    """What the model wrote, or nothing if that is no object: the call fails by itself then."""
    try:
        return parse_arguments(call.arguments)
    except ToolFailure:
        return {}


def _title(name: str, arguments: JSONObject) -> str:
    subject = next((value for key in _SUBJECTS if isinstance(value := arguments.get(key), str) and value.strip()), "")
    title = f"{name}: {' '.join(subject.split())}" if subject else name
    return title if len(title) <= _TITLE_CHARS else f"{title[: _TITLE_CHARS - 1]}…"


def _path(value: JSON, cwd: Path) -> str | None:
    return os.path.normpath(cwd / os.path.expanduser(value)) if isinstance(value, str) and value else None


def _change(name: str, arguments: JSONObject, path: str | None) -> tuple[ToolContent, ...]:
    """The change of a file that the arguments describe."""
    if path is None:
        return ()
    match name, arguments:
        case "edit", {"old_string": str(old), "new_string": str(new)}:
            return (DiffContent(path=path, old_text=old, new_text=new),)
        case "write", {"content": str(content)}:
            return (DiffContent(path=path, new_text=content),)
        case _:
            return ()
