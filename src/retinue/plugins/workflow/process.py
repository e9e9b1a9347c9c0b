"""The process of one script: started behind its walls, spoken with in lines of JSON, and ended whatever it does.

Nothing it writes is trusted. A line that is too long, or is no message, ends it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec
from anyio.abc import Process
from anyio.lowlevel import checkpoint
from msgspec import Struct

from retinue.base.json import JSON, JSONObject, decode, encode

__all__ = [
    "Answer",
    "AskAgent",
    "Done",
    "Failed",
    "Log",
    "Lost",
    "Mask",
    "Message",
    "Order",
    "Phase",
    "Ready",
    "Wait",
    "Worker",
    "open_worker",
    "python_command",
]

_CHUNK_BYTES = 65_536
_LINE_BYTES = 16 * 1024 * 1024
"""The longest message."""


class Lost(Exception):
    """The process is of no use any more; the message says why."""


class Order(Struct, frozen=True, kw_only=True):
    """The first line: what to run, and within which bounds."""

    script: str
    args: JSON
    meta: JSONObject
    items: int
    memory_bytes: int
    cpu_s: int


class Answer(Struct, frozen=True):
    """What came of an agent that was asked for."""

    id: int
    value: JSON


class _Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op"):
    pass


class Ready(_Message, frozen=True, tag="ready"):
    """The script is about to run."""


class AskAgent(_Message, frozen=True, tag="agent", kw_only=True):
    """An agent is wanted."""

    id: int
    prompt: str
    label: str
    schema: JSON = None
    agent: str | None = None


class Phase(_Message, frozen=True, tag="phase"):
    """A part of the work begins."""

    name: str


class Log(_Message, frozen=True, tag="log"):
    """Words for whoever reads the result."""

    text: str


class Wait(_Message, frozen=True, tag="wait"):
    """Nothing goes on before an answer comes; `seen` answers came so far."""

    seen: int


class Done(_Message, frozen=True, tag="done"):
    """The script has returned."""

    value: JSON


class Failed(_Message, frozen=True, tag="failed"):
    """The script has failed."""

    line: int | None
    message: str


Mask: TypeAlias = Callable[[JSON], JSON]
"""Takes secrets out."""

Message: TypeAlias = Ready | AskAgent | Phase | Log | Wait | Done | Failed


def python_command() -> tuple[str, ...]:
    """The command line of a fresh interpreter that runs `worker`, whose text it is given instead of a file. Blocks."""
    folder = Path(__file__).parent
    texts = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in ("language", "worker")]
    return (os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8", "-c", _BOOT, *texts)


_BOOT = """
import sys, types
for name, text in zip(("language", "worker"), sys.argv[1:]):
    made = types.ModuleType("retinue.plugins.workflow." + name)
    sys.modules[made.__name__] = made
    exec(compile(text, name, "exec"), made.__dict__)
made.main()
"""


class Worker:
    """A process that runs. Made by `open_worker`."""

    def __init__(self, process: Process, ours: socket.socket, mask: Mask) -> None:
        self._process = process
        self._mask = mask
        self._ours = ours
        self._sending = anyio.Lock()
        self._kept = bytearray()
        self._looked = 0

    @property
    def pid(self) -> int:
        """Of the process, which leads a group of its own."""
        return self._process.pid

    async def send(self, message: Order | Answer) -> None:
        """The system has taken all of it; the process need not have read it. Raises: Lost."""
        rest = memoryview(encode(message) + b"\n")
        async with self._sending:
            while rest:
                try:
                    rest = rest[self._ours.send(rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._ours)
                except OSError as error:
                    raise Lost(await self._ending()) from error

    async def receive(self) -> Message:
        """The next message. Raises: Lost if there will be none, or for what is no message."""
        await checkpoint()
        while (end := self._kept.find(b"\n", self._looked)) < 0:
            self._looked = len(self._kept)
            if self._looked > _LINE_BYTES:
                raise Lost(f"it wrote a line of more than {_LINE_BYTES // 1024 // 1024} MiB")
            self._kept += await self._read()
        line = bytes(self._kept[:end])
        del self._kept[: end + 1]
        self._looked = 0
        try:
            return msgspec.convert(self._mask(decode(line)), Message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Lost(f"it wrote what is no message: {error}") from error

    async def _read(self) -> bytes:
        while True:
            try:
                data = self._ours.recv(_CHUNK_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._ours)
                continue
            except OSError:
                data = b""
            if not data:
                raise Lost(await self._ending())
            return data

    async def _ending(self) -> str:
        """How it ended, or that it merely speaks no more."""
        with anyio.move_on_after(1.0):
            await self._process.wait()
        code = self._process.returncode
        if code is None:
            return "it closed its connection"
        number = -code if code < 0 else code - 128
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return "it was killed: it used all the time or memory that it may use"
        return f"its process ended by signal {number}" if number > 0 else f"its process ended with exit code {code}"

    async def close(self, grace_s: float) -> None:
        """It and all that it started are killed, and gone within `grace_s`. Shielded."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._ours.close()
        with anyio.move_on_after(grace_s, shield=True):
            await self._process.wait()


@asynccontextmanager
async def open_worker(argv: Sequence[str], *, grace_s: float, mask: Mask) -> AsyncGenerator[Worker]:
    """The process runs while the block does. It has an empty environment and no folder of ours. What it says goes
    through `mask`.

    Raises: Lost if it cannot be started.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        process = await _start(argv, theirs.fileno())
        theirs.close()
        worker = Worker(process, ours, mask)
        try:
            yield worker
        finally:
            await worker.close(grace_s)


async def _start(argv: Sequence[str], theirs: int) -> Process:
    try:
        # Shielded: if this were cancelled after the fork, nobody could stop it.
        with anyio.CancelScope(shield=True):
            return await anyio.open_process(
                list(argv),
                stdin=theirs,
                stdout=theirs,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        raise Lost(f"it could not be started: {error}") from error
    raise AssertionError("a scope that nobody cancels lets its block end")
