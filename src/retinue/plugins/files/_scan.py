"""Walking a tree, finding files in it and searching them. Also a program that answers one request on standard input.

It runs as `python -I -S _scan.py`: only a process of its own can be stopped inside a pattern that backtracks for ever.
It therefore imports nothing but the standard library. The request is one JSON object (see `find` and `search`); the
answer is one JSON list a line for each file, then one object with totals. What was printed before a kill is still true.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

NEVER = frozenset({".git", ".hg", ".svn"})
SKIPPED = frozenset(
    {
        "node_modules",
        "__pycache__",
        ".venv",
        ".tox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
    }
)
"""Folders of dependencies and caches: left out unless a search starts inside them, and named in its result."""

_LARGE_BYTES = 20 * 1024 * 1024
_LINE_CHARS = 400
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")


class Found(NamedTuple):
    """One file of a walk."""

    path: str
    """Absolute."""
    relative: str
    """To the root, with slashes."""
    is_link: bool


def walk(
    root: str,
    *,
    closed: frozenset[str],
    skipped: set[str],
    max_depth: int | None = None,
    folders: bool = False,
    is_late: Callable[[], bool] = lambda: False,
) -> Iterator[Found]:
    """Files below `root` (with `folders`: the folders instead), in path order; links to folders are not followed.

    Paths in `closed` are left out. Names of `SKIPPED` folders that were left out are added to `skipped`. Unreadable
    folders are passed over. Ends early when `is_late` says so.
    """
    stack = [iter(_entries(root))]
    prefixes = [""]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            prefixes.pop()
            continue
        if is_late():
            return
        if entry.path in closed:
            continue
        relative = prefixes[-1] + entry.name
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            is_link = entry.is_symlink()
        except OSError:
            continue
        if not is_folder:
            if not folders and (not is_link or os.path.isfile(entry.path)):
                yield Found(entry.path, relative, is_link)
            continue
        if entry.name in NEVER:
            continue
        if entry.name in SKIPPED:
            skipped.add(entry.name)
            continue
        if folders:
            yield Found(entry.path, relative, False)
        if max_depth is None or len(stack) < max_depth:
            stack.append(iter(_entries(entry.path)))
            prefixes.append(f"{relative}/")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A matcher of relative paths: `*` and `?` stay within a name, `**` spans folders, `[ab]`, `[!ab]`, `{a,b}`.

    Raises: ValueError for braces or brackets that make no sense.
    """
    out: list[str] = []
    depth = at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            stars = 1
            while pattern[at : at + 1] == "*":
                stars, at = stars + 1, at + 1
            starts_name = at - stars == 0 or pattern[at - stars - 1] in "/{,"
            if stars == 1:
                out.append("[^/]*")
            elif starts_name and pattern[at : at + 1] == "/":
                out.append("(?:.*/)?")
                at += 1
            else:
                out.append(".*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := pattern.find("]", at + 1)) > 0:
            # Doubled, these would be set operations some day, and a warning now.
            inner = re.sub(r"([\\\[&~|])|(?<=-)-", r"\\\g<0>", pattern[at:end])
            out.append(f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]")
            at = end + 1
        elif char == "{" and "}" in pattern[at:]:
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        elif char == "\\" and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append(re.escape(char))
    try:
        return re.compile("".join(out) + r"\Z", re.S)
    except re.error as error:
        raise ValueError(str(error)) from error


def glob_filter(pattern: str) -> Callable[[str], bool]:
    """True for relative paths that match; a pattern without a slash is matched with the name alone, at any depth."""
    match = glob_regex(pattern.lstrip("/")).match
    if "/" in pattern:
        return lambda relative: match(relative) is not None
    return lambda relative: match(relative.rpartition("/")[2]) is not None


def find(request: dict[str, Any], put: Callable[[object], None]) -> None:
    """`[path]` of every file below `root` whose relative path matches `pattern` was put, then the totals.

    With `folders`, folders instead; with `newest`, the most recently changed first; at most `limit`.
    """
    pattern: str = request["pattern"]
    limit: int = request["limit"]
    match = glob_regex(pattern).match
    walked = _Walk(request)
    depth = None if "**" in pattern else pattern.count("/") + 1
    found = (f.path for f in walked.files(max_depth=depth, folders=request["folders"]) if match(f.relative))
    if request["newest"]:
        found = iter(sorted(found, key=lambda path: (-_changed_ns(path), path)))
    for count, path in enumerate(found):
        if count == limit:
            walked.more = True
            break
        put([path])
    put(walked.totals())


def search(request: dict[str, Any], put: Callable[[object], None]) -> None:
    """Every file below `root` (or that file) with a line that matches `pattern` was put, then the totals.

    A file is `[path, matching lines, [[number, text, is_match], ...]]`. Further keys: `ignore_case`, `glob` (a filter,
    or null), `context` (lines around a match), `lines` (whether texts are wanted) and `limit` (of matching lines, or
    of files if no texts are wanted).
    """
    pattern: str = request["pattern"]
    flags = re.IGNORECASE if request["ignore_case"] else 0
    matcher = re.compile(pattern, flags)
    literal = "" if flags or _SPECIAL.search(pattern) else pattern
    wanted = glob_filter(request["glob"]) if request["glob"] else None
    left: int = request["limit"]
    walked = _Walk(request)
    for found in walked.files():
        if found.is_link or (wanted is not None and not wanted(found.relative)):
            continue
        text = _load(found.path, walked)
        if text is None or (literal and literal not in text):
            continue
        lines = text.removesuffix("\n").split("\n")
        hits = [n for n, line in enumerate(lines) if matcher.search(line)]
        if not hits:
            continue
        if not left:
            walked.more = True
            break
        texts: list[tuple[int, str, bool]] = []
        if request["lines"]:
            walked.more = len(hits) > left
            texts = _shown(lines, hits[:left], request["context"], matcher)
        put([found.path, len(hits), texts])
        left -= len(hits[:left]) if request["lines"] else 1
    put(walked.totals())


class _Walk:
    """One walk for a request, which has `root`, `closed` (paths) and `soft_s` (when it ends by itself)."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._root: str = request["root"]
        self._closed = frozenset[str](request["closed"])
        self._deadline = time.monotonic() + request["soft_s"]
        self._skipped: set[str] = set()
        self.large = 0
        self.more = False

    def files(self, *, max_depth: int | None = None, folders: bool = False) -> Iterator[Found]:
        if not os.path.isdir(self._root):
            yield Found(self._root, os.path.basename(self._root), False)
            return
        yield from walk(
            self._root,
            closed=self._closed,
            skipped=self._skipped,
            max_depth=max_depth,
            folders=folders,
            is_late=self._is_late,
        )

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def totals(self) -> dict[str, Any]:
        return {"late": self._is_late(), "more": self.more, "large": self.large, "skipped": sorted(self._skipped)}


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _load(path: str, walked: _Walk) -> str | None:
    """The text, or None for what is no readable text file of bearable size."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size > _LARGE_BYTES:
                walked.large += 1
                return None
            data = file.read(8192)
            if b"\0" in data:
                return None
            data += file.read(_LARGE_BYTES)
    except OSError:
        return None
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _shown(lines: list[str], hits: list[int], context: int, matcher: re.Pattern[str]) -> list[tuple[int, str, bool]]:
    matching = set(hits)
    wanted = {m for n in hits for m in range(max(0, n - context), min(len(lines), n + context + 1))}
    return [(n + 1, _cut(lines[n], matcher if n in matching else None), n in matching) for n in sorted(wanted)]


def _cut(line: str, matcher: re.Pattern[str] | None) -> str:
    if len(line) <= _LINE_CHARS:
        return line
    match = matcher.search(line) if matcher else None
    start = max(0, match.start() - _LINE_CHARS // 4) if match else 0
    end = start + _LINE_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _main() -> None:
    request = json.load(sys.stdin)
    # If whoever asked dies, nobody is left to stop a pattern that backtracks for ever; the system then does.
    with suppress(ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"] + 1))

    def put(value: object) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    try:
        (find if request["kind"] == "find" else search)(request, put)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        put({"error": str(error)})


if __name__ == "__main__":
    _main()
