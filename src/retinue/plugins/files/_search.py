"""The `glob` and `grep` tools: finding files by name and by content, both bounded in time and in what they show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter, to_thread
from msgspec import Meta

from retinue.errors import ToolFailure
from retinue.plugins.files._text import caller_of, plural
from retinue.plugins.files._worker import Answer, ask
from retinue.plugins.permissions import Permissions
from retinue.tools.function import tool
from retinue.tools.output import clean_text
from retinue.tools.tool import Caller, Tool, ToolContext

_WILD = frozenset("*?[{")


def search_tools(permissions: Permissions, *, timeout_s: float) -> list[Tool]:
    """`glob` and `grep` within `permissions`; a search longer than `timeout_s` is stopped and shows what it has."""
    # A search keeps a processor busy, so more of them at once would only slow each other down.
    limiter = CapacityLimiter(max(2, os.cpu_count() or 2))

    async def run(request: dict[str, Any]) -> Answer:
        closed = await to_thread.run_sync(permissions.closed_paths)
        async with limiter:
            return await ask({**request, "closed": [str(path) for path in closed]}, timeout_s)

    @tool(safe=True)
    async def glob(
        ctx: ToolContext,
        pattern: Annotated[str, "Such as `src/**/*.py` or `**/{test,spec}_*`; a trailing slash finds folders."],
        path: Annotated[str, "The folder to search, absolute or relative to the working folder."] = ".",
        sort: Annotated[Literal["path", "mtime"], "By path, or most recently changed first."] = "path",
        limit: Annotated[int, "How many to show at most.", Meta(ge=1, le=2000)] = 200,
    ) -> str:
        """Find files whose path matches a pattern. `*` stays within one name, `**` spans folders.

        Version control folders are never searched, folders of dependencies and caches only if the search starts in one.
        """
        caller = caller_of(ctx)
        fixed, rest = _split(pattern)
        root = await to_thread.run_sync(_folder, permissions, caller, os.path.join(path, fixed))
        folders = rest.endswith("/")
        answer = await run(
            {
                "kind": "find",
                "root": str(root),
                "pattern": rest.rstrip("/") or "*",
                "folders": folders,
                "newest": sort == "mtime",
                "limit": limit,
            }
        )
        cwd = _real_cwd(caller)
        return _answer(
            [_name(found[0], cwd) + ("/" if folders else "") for found in answer.files], answer, limit, timeout_s
        )

    @tool(safe=True)
    async def grep(
        ctx: ToolContext,
        pattern: Annotated[str, "A regular expression in Python's syntax, matched with each line."],
        path: Annotated[str, "The file or folder to search, absolute or relative to the working folder."] = ".",
        glob: Annotated[str | None, "Only files whose name (or path, if it has a slash) matches, as `*.py`."] = None,
        output: Annotated[
            Literal["content", "files", "count"], "Matching lines, paths of files, or matching lines per file."
        ] = "content",
        context: Annotated[int, "Lines to show before and after each match.", Meta(ge=0, le=20)] = 0,
        ignore_case: bool = False,
        limit: Annotated[int, "How many matching lines (or files) to show at most.", Meta(ge=1, le=2000)] = 200,
    ) -> str:
        """Search the content of files with a regular expression.

        Binary and very large files are passed over; version control folders are never searched, folders of
        dependencies and caches only if the search starts in one.
        """
        caller = caller_of(ctx)
        root = await to_thread.run_sync(_existing, permissions, caller, path)
        answer = await run(
            {
                "kind": "search",
                "root": str(root),
                "pattern": pattern,
                "ignore_case": ignore_case,
                "glob": glob,
                "context": context,
                "lines": output == "content",
                "limit": limit,
            }
        )
        cwd = _real_cwd(caller)
        groups = [_lines(_name(found, cwd), count, lines, output, context) for found, count, lines in answer.files]
        separator = ["--"] if output == "content" and context else []
        shown = [line for group in groups for line in (*group, *separator)]
        return _answer(shown[: len(shown) - len(separator)], answer, limit, timeout_s)

    return [glob, grep]


def _lines(name: str, count: int, lines: list[tuple[int, str, bool]], output: str, context: int) -> list[str]:
    if output == "files":
        return [name]
    if output == "count":
        return [f"{name}:{count}"]
    shown: list[str] = []
    last = lines[0][0] - 1
    for number, text, hit in lines:
        if context and number != last + 1:
            shown.append("--")
        last = number
        mark = ":" if hit else "-"
        shown.append(f"{name}{mark}{number}{mark}{text}")
    return shown


def _split(pattern: str) -> tuple[str, str]:
    """The leading folders of a pattern that hold no wildcard, and the rest."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and parts[fixed + 1] and not _WILD.intersection(parts[fixed]):
        fixed += 1
    return ("/".join(parts[:fixed]) + "/" if fixed else ""), "/".join(parts[fixed:])


def _existing(permissions: Permissions, caller: Caller, path: str) -> Path:
    root = permissions.check_read(caller, path)
    if not root.exists():
        raise ToolFailure("NOT_FOUND", f"{root} does not exist")
    return root


def _folder(permissions: Permissions, caller: Caller, path: str) -> Path:
    root = _existing(permissions, caller, path)
    if not root.is_dir():
        raise ToolFailure("NOT_A_FOLDER", f"{root} is a file; `read` it, or search in it with `grep`")
    return root


def _real_cwd(caller: Caller) -> str:
    return os.path.realpath(caller.cwd).rstrip("/") + "/"


def _name(path: str, cwd: str) -> str:
    """Relative to the working folder if it is inside."""
    return clean_text(path.removeprefix(cwd))


def _answer(lines: list[str], answer: Answer, limit: int, timeout_s: float) -> str:
    notes: list[str] = []
    if answer.late:
        notes.append(
            f"stopped after {timeout_s:g} s, so something may be missing; use a simpler pattern or a smaller path"
        )
    if answer.more:
        notes.append(f"only the first {limit} are shown; narrow the search to see others")
    if answer.large:
        notes.append(f"passed over {plural(answer.large, 'very large file')}")
    if answer.skipped:
        notes.append(f"not searched: {', '.join(answer.skipped)} (start the search inside one to see it)")
    return "\n".join([*(lines or ["(no matches)"]), *(f"[{note}]" for note in notes)])
