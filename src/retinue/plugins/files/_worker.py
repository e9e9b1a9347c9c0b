"""Asking the searching process: one process per request, stopped when its time is over or its caller is cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, cast

import anyio
from anyio.abc import Process
from msgspec import Struct

from retinue.errors import ToolFailure
from retinue.plugins.files import _scan

_OUTPUT_BYTES = 8 * 1024 * 1024
"""More is not read; the limit on matches keeps an answer far below."""
_STOP_S = 5.0


class Answer(Struct, frozen=True, kw_only=True):
    """What a search found; with `late`, what it had found when it was stopped."""

    files: list[list[Any]]
    """The lists that `_scan` puts, one per file."""
    late: bool = False
    more: bool = False
    large: int = 0
    skipped: tuple[str, ...] = ()


async def ask(request: dict[str, Any], timeout_s: float) -> Answer:
    """The answer to a request of `_scan`, within `timeout_s`. Cancelling stops the process.

    Raises: ToolFailure `INVALID_PATTERN` for a pattern that does not compile, `SEARCH_FAILED` if the process broke.
    """
    # The search ends by itself a little before it is stopped, unless it is caught inside one pattern.
    bounds = {"soft_s": timeout_s * 0.9, "cpu_s": int(timeout_s) + 5}
    printed = bytearray()
    process = await _start()
    try:
        with anyio.move_on_after(timeout_s) as scope:
            await _talk(process, json.dumps(request | bounds).encode(), printed)
            await process.wait()
    finally:
        with anyio.move_on_after(_STOP_S, shield=True):
            if process.returncode is None:
                # Not `process.kill()`: that may reap the process itself, and then the watcher of the loop complains.
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            await process.aclose()
    return _parsed(bytes(printed), stopped=scope.cancelled_caught)


async def _start() -> Process:
    # Shielded: if this were cancelled after the fork, nobody would wait for its end.
    with anyio.CancelScope(shield=True):
        # -I and -S: neither the working folder nor site packages, so nothing of the searched tree is ever run.
        return await anyio.open_process(
            [sys.executable, "-I", "-S", _scan.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
    raise AssertionError("a scope that nobody cancels lets its block end")


async def _talk(process: Process, request: bytes, printed: bytearray) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(anyio.BrokenResourceError):  # it ended before it read everything; the answer says why
        await process.stdin.send(request)
        await process.stdin.aclose()
    async for chunk in process.stdout:
        printed += chunk
        if len(printed) > _OUTPUT_BYTES:
            raise ToolFailure("SEARCH_FAILED", f"the search printed more than {_OUTPUT_BYTES} bytes; ask for less")


def _parsed(printed: bytes, *, stopped: bool) -> Answer:
    files: list[list[Any]] = []
    for line in printed.split(b"\n")[:-1]:  # what follows the last newline is incomplete
        value: object = json.loads(line)
        if isinstance(value, list):
            files.append(cast(list[Any], value))
            continue
        totals = cast(dict[str, Any], value)
        if "error" in totals:
            raise ToolFailure("INVALID_PATTERN", f"the pattern cannot be used: {totals['error']}")
        skipped = tuple[str, ...](totals.pop("skipped"))
        return Answer(files=files, skipped=skipped, **totals)
    if not stopped:
        raise ToolFailure("SEARCH_FAILED", "the searching process ended before its work was done")
    return Answer(files=files, late=True)
