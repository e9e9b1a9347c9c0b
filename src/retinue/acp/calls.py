"""How a tool call looks to somebody who watches: its kind, its title, the files it is about, what it changed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import UNSET

from retinue.acp.blocks import ImageBlock, TextBlock
from retinue.acp.updates import (
    CommonContent,
    DiffContent,
    Location,
    Plan,
    PlanEntry,
    TerminalContent,
    ToolCallAsked,
    ToolCallChanged,
    ToolCallStarted,
    ToolContent,
    ToolKind,
)
from retinue.base.json import JSON, JSONObject
from retinue.errors import ToolFailure
from retinue.host.approvals import Question
from retinue.model.content import Block, Image, Text, ToolCall, text_of
from retinue.session.events import ToolReturned
from retinue.tools.arguments import parse_arguments

__all__ = ["call_asked", "call_id", "call_returned", "call_started", "plan_of", "shown", "verbatim"]

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
_VERBATIM = frozenset(("bash", "read", "glob", "grep", "task_output"))
"""Tools whose text is no Markdown."""
_DIFFERENCE = ("old_text", "new_text")
"""Facts of a result that are shown as a change."""


def call_id(seq: int, index: int) -> str:
    """The id of a call within its session: its place in the log, since ids of models may repeat."""
    return f"call-{seq}-{index}"


def call_started(seq: int, index: int, call: ToolCall, cwd: Path, *, terminal: str | None) -> ToolCallStarted:
    """The call as it is asked for; `terminal` will show what it says, for clients that were told of it here.

    Source: the keys of `_meta` are those that Zed knows, and the adapters for Claude and Codex use.
    """
    arguments = _arguments(call)
    path = _path(arguments.get("path"), cwd)
    return ToolCallStarted(
        tool_call_id=call_id(seq, index),
        title=_title(call.name, arguments),
        name=call.name,
        kind=_KINDS.get(call.name, "other"),
        content=_change(call.name, arguments, path) if terminal is None else (TerminalContent(terminal_id=terminal),),
        locations=_locations(call.name, arguments, path),
        raw_input=arguments,
        meta=None if terminal is None else {"terminal_info": {"terminal_id": terminal, "cwd": str(cwd)}},
    )


def call_asked(id: str, question: Question, cwd: Path, *, by: str = "", before: str | None = None) -> ToolCallAsked:
    """The call that somebody shall decide about; `by` says which child asks, if the client cannot see that.

    `before` is the text of the file that it would replace. A command is shown whole.
    """
    path = _path(question.arguments.get("path"), cwd)
    title = _title(question.tool, question.arguments)
    return ToolCallAsked(
        tool_call_id=id,
        title=f"{by}: {title}" if by else title,
        name=question.tool,
        kind=_KINDS.get(question.tool, "other"),
        content=_command(question) or _change(question.tool, question.arguments, path, before=before),
        locations=_locations(question.tool, question.arguments, path),
        raw_input=question.arguments,
    )


def call_returned(
    seq: int, call: ToolCall, returned: ToolReturned, cwd: Path, *, is_shown: bool = False
) -> ToolCallChanged:
    """What the call came to. A change that was made is shown as such, everything else by its result.

    `is_shown`: what it said is in a terminal. Text that is shown nowhere else is in the raw output.
    """
    is_error = returned.message.is_error
    arguments, facts = _arguments(call), returned.meta or {}
    change = () if is_error or is_shown else _made(call.name, arguments, facts, _path(arguments.get("path"), cwd))
    raw = {name: value for name, value in facts.items() if name not in _DIFFERENCE}
    if change or is_shown:
        raw["output"] = text_of(returned.message.content)
    return ToolCallChanged(
        tool_call_id=call_id(seq, returned.index),
        status="failed" if is_error else "completed",
        content=None if is_shown else change or _result(call.name, returned),
        locations=_real_locations(facts),
        raw_output=raw or UNSET,
    )


def verbatim(text: str) -> CommonContent:
    """Text that is no Markdown, as Markdown."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    body = text.rstrip("\n")
    return CommonContent(content=TextBlock(text=f"{fence}console\n{body}\n{fence}"))


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


def _result(name: str, returned: ToolReturned) -> tuple[CommonContent, ...]:
    blocks = shown(returned.message.content)
    return tuple(
        verbatim(block.text) if isinstance(block, TextBlock) and name in _VERBATIM else CommonContent(content=block)
        for block in blocks
    )


def _title(name: str, arguments: JSONObject) -> str:
    subject = next((value for key in _SUBJECTS if isinstance(value := arguments.get(key), str) and value.strip()), "")
    match name, arguments:
        case "bash", {"command": str(command)} if command.strip():
            title = " ".join(command.split())
        case "read", {"offset": int(first), "limit": int(count)}:
            title = f"{name}: {subject} (lines {first}-{first + count - 1})"
        case "read", {"offset": int(first)}:
            title = f"{name}: {subject} (from line {first})"
        case _:
            title = f"{name}: {' '.join(subject.split())}" if subject else name
    return title if len(title) <= _TITLE_CHARS else f"{title[: _TITLE_CHARS - 1]}…"


def _locations(name: str, arguments: JSONObject, path: str | None) -> tuple[Location, ...]:
    """The file that the call is about. What other tools call an offset may be no line."""
    line = _line_number(arguments.get("offset")) if name == "read" else None
    return () if path is None else (Location(path=path, line=line),)


def _real_locations(facts: JSONObject) -> tuple[Location, ...] | None:
    """Where the result says that it was, if it does."""
    real = facts.get("path")
    if not (isinstance(real, str) and os.path.isabs(real)):
        return None
    return (Location(path=real, line=_line_number(facts.get("line"))),)


def _line_number(value: JSON) -> int | None:
    return value if type(value) is int and value > 0 else None


def _command(question: Question) -> tuple[ToolContent, ...]:
    """The whole command that the call would run, and what it is said to do; the title may have a part of it alone."""
    match question.tool, question.arguments:
        case "bash", {"command": str(command), **rest}:
            said = rest.get("description")
            words = (CommonContent(content=TextBlock(text=said)),) if isinstance(said, str) and said.strip() else ()
            return (verbatim(command), *words)
        case _:
            return ()


def _path(value: JSON, cwd: Path) -> str | None:
    """Where the argument leads; None if it leads nowhere. A model may write anything."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return os.path.normpath(cwd / os.path.expanduser(value))
    except ValueError:
        return None


def _made(name: str, arguments: JSONObject, facts: JSONObject, path: str | None) -> tuple[ToolContent, ...]:
    """The change of a file that was made: as the result says, else as it was asked for."""
    match facts:
        case {"path": str(real), "old_text": str(old), "new_text": str(new)}:
            return (DiffContent(path=real, old_text=old, new_text=new),)
        case _:
            return _change(name, arguments, path)


def _change(
    name: str, arguments: JSONObject, path: str | None, *, before: str | None = None
) -> tuple[ToolContent, ...]:
    """The change of a file that the arguments describe; `before` is the text that a whole new one replaces."""
    if path is None:
        return ()
    match name, arguments:
        case "edit", {"old_string": str(old), "new_string": str(new)}:
            return (DiffContent(path=path, old_text=old, new_text=new),)
        case "write", {"content": str(content)}:
            return (DiffContent(path=path, old_text=before, new_text=content),)
        case _:
            return ()
