"""What the calls of one session say while they run, at the pace of a client, and the terminals that show it.

A client that announced terminals of its own making gets one for each command: what is new is appended, and its exit is
told. For others the end of the output is content of the call, which is replaced. Source: decision 0019.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from retinue.acp.blocks import TextBlock
from retinue.acp.calls import call_id, call_returned, verbatim
from retinue.acp.updates import CommonContent, TerminalContent, ToolCallChanged, ToolContent, Update
from retinue.base.ids import SessionId
from retinue.base.json import JSON, JSONObject
from retinue.model.content import ToolCall, text_of
from retinue.plugins.shell import signal_name
from retinue.plugins.shell.background import background_exit_code
from retinue.session.events import TaskEnded, ToolReturned

__all__ = ["Outputs", "TerminalKey"]

TerminalKey: TypeAlias = Literal["terminal_output", "terminal_output_delta"]
"""Under which key of `_meta` a client wants to be told what is new in a terminal."""

_FRESH_CHARS = 16_000
"""Of output that was not told yet, the newest is kept."""
_TAIL_CHARS = 4_000
"""Of output that replaces what was told before."""
_TOLD_CHARS = 4_000_000
"""Of one call. Of what a call says beyond that, a quarter as much is kept."""


class Outputs:
    """`tell` is called with each update, in order; `key` is None for a client that has no such terminals."""

    def __init__(self, session: SessionId, tell: Callable[[Update], None], key: TerminalKey | None) -> None:
        self._session = session
        self._tell = tell
        self._key: TerminalKey | None = key
        self._live: dict[str, _Live] = {}
        """Of calls whose beginning was seen live, and of commands in the background, by the ids of the calls."""
        self._tasks: dict[str, tuple[str, ToolCallChanged]] = {}
        """Id and result of the call that started a command in the background, by its task."""
        self._ended: dict[str, TaskEnded] = {}
        """Of tasks whose call has no result yet."""

    def terminal(self, call: str, name: str) -> str | None:
        """The id of the terminal that shows what the call says."""
        return f"{self._session}/{call}" if self._key is not None and name == "bash" else None

    def begun(self, call: str, name: str, *, live: bool) -> None:
        """The client knows that the call runs. What it says is told if its beginning was seen `live`."""
        terminal = self.terminal(call, name)
        content = None if terminal is None else (TerminalContent(terminal_id=terminal),)
        self._tell(ToolCallChanged(tool_call_id=call, status="in_progress", content=content))
        if live:
            self._live[call] = _Live(is_tail=terminal is None)

    def add(self, call: str, text: str) -> None:
        """That is new of what the call says; `tell_new` tells it."""
        live = self._live.get(call)
        if live is not None:
            live.add(text)

    def tell_new(self) -> None:
        """What was added by now was told, but for what is too much."""
        for call, live in self._live.items():
            text = live.take()
            if text and live.is_tail:
                self._tell(ToolCallChanged(tool_call_id=call, content=(*live.above, verbatim(text))))
            elif text:
                self._append(call, text)

    def returned(self, seq: int, call: ToolCall, returned: ToolReturned, cwd: Path) -> ToolCallChanged:
        """The client knows what the call came to. What it was told last is returned."""
        id = call_id(seq, returned.index)
        terminal = self.terminal(id, call.name)
        facts = returned.meta or {}
        task = facts.get("task_id")
        if call.name == "bash" and isinstance(task, str) and not returned.message.is_error:
            changed = call_returned(seq, call, returned, cwd, is_shown=terminal is not None)
            self._tasks[task] = id, changed
            if id not in self._live:
                self._live[id] = _Live(is_tail=terminal is None)
                self._live[id].add("[what it said until now is not kept]\n")
            self._live[id].above = changed.content or ()
            self._tell(changed)
            ended = self._ended.pop(task, None)
            if ended is not None:
                self.task_ended(ended)
            return changed
        live = self._live.pop(id, None)
        has_said = live is not None and live.has_said
        is_shown = terminal is not None and (has_said or "exit_code" in facts)
        changed = call_returned(seq, call, returned, cwd, is_shown=is_shown)
        if terminal is not None:
            code = facts.get("exit_code")
            if is_shown:
                self._append(id, _last(live, facts, text_of(returned.message.content)))
            changed = replace(changed, meta=_exit(terminal, code if type(code) is int else None))
        self._tell(changed)
        return changed

    def task_ended(self, ended: TaskEnded) -> None:
        """The client knows how the command in the background ended, if a call of this session started it."""
        id, changed = self._tasks.pop(ended.task_id, ("", None))
        if changed is None:
            if ended.task_id.startswith("bash-"):
                self._ended[ended.task_id] = ended
            return
        live = self._live.pop(id)
        words = f"[{ended.task_id} {ended.status}{f': {ended.detail}' if ended.detail else ''}]"
        said = live.take(is_last=True)
        terminal = self.terminal(id, "bash")
        if terminal is not None:
            self._append(id, f"{said}{live.line_end}{words}\n")
            self._tell(ToolCallChanged(tool_call_id=id, meta=_exit(terminal, background_exit_code(ended.detail))))
            return
        end = CommonContent(content=TextBlock(text=words))
        parts: tuple[ToolContent, ...] = (verbatim(said), end) if said else (end,)
        self._tell(ToolCallChanged(tool_call_id=id, content=(*(changed.content or ()), *parts)))

    def _append(self, call: str, text: str) -> None:
        assert self._key is not None
        if not text:
            return
        data: JSONObject = {"terminal_id": self.terminal(call, "bash"), "data": text}
        self._tell(ToolCallChanged(tool_call_id=call, meta={self._key: data}))


class _Live:
    """What one call says, bounded: what is new in order, or the end of all of it."""

    def __init__(self, *, is_tail: bool) -> None:
        self.is_tail = is_tail
        self.has_said = False
        self.above: tuple[ToolContent, ...] = ()
        """Content of the call that stays."""
        self.line_end = ""
        """What is missing for a line of its own."""
        self._text = ""
        self._is_new = False
        self._skipped = 0
        self._told = 0

    def add(self, text: str) -> None:
        """See Outputs."""
        self.has_said = self._is_new = True
        self.line_end = "" if text.endswith("\n") else "\n"
        self._text += text
        excess = len(self._text) - (_FRESH_CHARS if not self.is_tail and self._told < _TOLD_CHARS else _TAIL_CHARS)
        if excess > 0:
            self._text = self._text[excess:]
            self._skipped += excess

    def take(self, *, is_last: bool = False) -> str:
        """What is to be told now; empty if nothing is."""
        if not is_last and not self._is_new:
            return ""
        note = f"[{self._skipped} characters of output are not shown]\n" if self._skipped else ""
        text, self._is_new = note + self._text, False
        self._told += len(text)
        if self.is_tail:  # no terminal in which a line could overwrite itself
            return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        self._text, self._skipped = "", 0
        return text


def _last(live: _Live | None, facts: JSONObject, text: str) -> str:
    """What a terminal shows at its end: all if it showed nothing live, else the rest and what is to be said of it."""
    if live is None:
        return text
    said = live.take(is_last=True)
    if "exit_code" not in facts:
        return f"{said}{live.line_end}[{text}]\n"
    notes = facts.get("notes")
    lines = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    return said + live.line_end + "".join(f"{line}\n" for line in lines) if lines else said


def _exit(terminal: str, code: int | None) -> JSONObject:
    """That nothing runs in the terminal any more, and how it ended as far as that is known."""
    number: JSON = code if code is not None and code >= 0 else None
    signal: JSON = signal_name(-code) if code is not None and code < 0 else None
    return {"terminal_exit": {"terminal_id": terminal, "exit_code": number, "signal": signal}}
