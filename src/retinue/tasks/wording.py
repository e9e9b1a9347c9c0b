"""What a model reads about tasks: receipts, readings, lists, notices, guidance. Pure functions of snapshots.

Texts about a task with a byte limit keep within it. Cuts fall between characters.
"""

from __future__ import annotations

from retinue.base.json import JSONObject
from retinue.prompt.sections import AssemblyContext
from retinue.tasks.record import KillAnswer, TaskRead, TaskSnapshot
from retinue.tools.output import clean_text, cut_head, cut_tail

__all__ = [
    "died_text",
    "error_text",
    "guidance",
    "kill_text",
    "list_text",
    "notice_text",
    "read_text",
    "receipt",
    "summary_line",
    "task_object",
]

_TRUNCATED = "[... earlier output cut ...]\n"
_NO_OUTPUT = "(no new output)"
_SUMMARY_CHARS = 120
_LABEL_CHARS = 200
_DETAIL_BYTES = 4096
_LEAST_LABEL_BYTES = 8
"""A shorter piece of a label says nothing."""

_GUIDANCE = """\
Work that runs in the background has a task id, such as `bash-1`. Keep track of the ids that you are given. A notice \
reaches you when a task ends, so never poll, sleep or wait merely to find out: go on with whatever does not depend on \
it. `task_output` reads a task; let it wait only when nothing else is left to do until then. Before your final answer, \
collect the results that still matter."""
_GUIDANCE_KILL = " Stop tasks that do not matter any more with `task_kill`."


def guidance(context: AssemblyContext) -> str:
    """How to live with tasks, for a scope that can collect them; nothing for one that cannot."""
    if "task_output" not in context.tools:
        return ""
    return _GUIDANCE + (_GUIDANCE_KILL if "task_kill" in context.tools else "")


def receipt(task: TaskSnapshot) -> str:
    """What the call that started a task answers."""
    return (
        f"Task {task.id} is running in the background. This is a receipt, not its result: a notice comes when it ends, "
        "so do not poll or sleep. task_output reads what there is of it, task_kill stops it."
    )


def read_text(read: TaskRead) -> str:
    """The body and one line with the status. Source: behaviour TT-05, TT-11."""
    body = clean_text(read.text).rstrip("\n") or _NO_OUTPUT
    return _with_last_line(body, _status_line(read.task), read.task.output_limit)


def kill_text(answer: KillAnswer, task: TaskSnapshot) -> str:
    """What became of the wish to end a task."""
    body = (
        f"`{task.id}` was asked to stop; no notice will follow."
        if answer == "cancellation-requested"
        else f"`{task.id}` had already finished; its output can still be read."
    )
    return _with_last_line(body, _status_line(task), task.output_limit)


def error_text(message: str, task: TaskSnapshot, reserve: int) -> str:
    """`message` within the task's limit less `reserve` bytes."""
    if task.output_limit is None:
        return message
    return _head(message, max(0, task.output_limit - reserve))


def list_text(tasks: tuple[TaskSnapshot, ...]) -> str:
    """One line per task."""
    lines = [f"{t.id} [{t.kind}] {t.status} — {_line(t.label)}" for t in tasks]
    return "\n".join(lines) or "(no background tasks)"


def task_object(task: TaskSnapshot) -> JSONObject:
    """A task as results carry it. Source: behaviour TT-09."""
    shown: JSONObject = {"id": task.id, "kind": task.kind, "label": task.label, "status": task.status}
    if task.detail is not None:
        shown["detail"] = task.detail
    shown["started_at"] = task.started_at
    if task.finished_at is not None:
        shown["finished_at"] = task.finished_at
    return shown


def notice_text(task: TaskSnapshot) -> str:
    """The end of a task as its owner is told; under a byte limit the id and what to do survive."""

    def told(about: str, status: str) -> str:
        do = f"Read its output with `task_output`, task_id `{task.id}`."
        return f"Background task `{task.id}`{about} has ended: {status}. {do}"

    label, limit = _line(task.label), task.output_limit
    status = task.status if task.detail is None else f"{task.status}, {_line(task.detail)}"
    text = told(f" ({task.kind}: {label})", status)
    if limit is None or _size(text) <= limit:
        return text
    room = limit - _size(told(f" ({task.kind}: )", task.status))
    if room >= _LEAST_LABEL_BYTES:
        return told(f" ({task.kind}: {_head(label, room)})", task.status)
    bare = told("", task.status)
    return bare if _size(bare) <= limit else f"`{task.id}` {task.status}: read it with `task_output`."


def died_text(task_id: str, kind: str, label: str) -> str:
    """A task that a crash cut off, as its owner is told."""
    return (
        f"Background task `{task_id}` ({kind}: {_line(label)}) has ended: failed, it died with the process that ran "
        "it. Its output is lost. Find out how far it got before you start it again."
    )


def summary_line(task_id: str, status: str, label: str) -> str:
    """One bounded line for front ends."""
    text = f"{task_id} {status}: {_line(label)}"
    return text if len(text) <= _SUMMARY_CHARS else f"{text[: _SUMMARY_CHARS - 1]}…"


def _status_line(task: TaskSnapshot) -> str:
    return f"[status: {task.status}]" if task.detail is None else f"[status: {task.status}, {_detail(task.detail)}]"


def _detail(text: str) -> str:
    """Why a task failed, on one line: whoever reads the task has no other place to find out."""
    line = " ".join(clean_text(text).split())
    return line if _size(line) <= _DETAIL_BYTES else f"{_head(line, _DETAIL_BYTES).rstrip()}…"


def _with_last_line(body: str, last: str, limit: int | None) -> str:
    """`body` and, after exactly one newline, `last`; of a longer body the tail is kept."""
    text = f"{body}\n{last}"
    if limit is None or _size(text) <= limit:
        return text
    room = limit - _size(_TRUNCATED) - _size(last) - 1
    if room > 0:
        tail = cut_tail(body.encode(), room).decode().rstrip("\n")
        return f"{_TRUNCATED}{tail}\n{last}"
    return _head(last, limit)


def _line(text: str) -> str:
    """`text` on one line, bounded."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= _LABEL_CHARS else f"{line[: _LABEL_CHARS - 1]}…"


def _head(text: str, limit: int) -> str:
    return cut_head(text.encode(), limit).decode()


def _size(text: str) -> int:
    return len(text.encode())
