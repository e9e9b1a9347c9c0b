"""One run of an external agent program: started in a group of its own, spoken to, and ended as a whole.

One task owns it, `run_program`. Whoever uses it asks through `Program.request` and closes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process, TaskStatus
from msgspec import Raw

from retinue.base.diagnostics import Diagnostics, diagnostics
from retinue.base.family import Family
from retinue.base.frames import AUTH_REQUIRED, Failure
from retinue.base.json import JSONObject
from retinue.base.jsonrpc import Answer, Handler, Peer
from retinue.base.pipe import Groups, ProgramPipe
from retinue.errors import ExternalAgentFailed
from retinue.tools.secrets import ByteMask, Secrets

__all__ = ["EOF_GRACE_S", "Launch", "Program", "run_program"]

EOF_GRACE_S, TERM_GRACE_S, KILL_WAIT_S = 6.0, 3.0, 1.0
"""From the end of its input to SIGTERM (unless another grace is given), from there to SIGKILL, and to giving up.
Source: behaviour AC-18."""
LAST_WORDS_S = 0.5
"""How long the output of a program that has ended is still listened to: what it started may hold it open."""
HASTE_S = 2.5
"""The same where the process is about to end, which it does within eight seconds. Source: decision 0011."""
LEAVE_S = 0.5
"""How long what a program started may outlive it before it is ended."""
_MOST_CHARS = 600
"""Of what is said about a failure. In any script, that and the last words fit into the 4096 bytes of a diagnostic.
Source: behaviour SS-16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a program is started."""

    name: str
    """Of the agent, for messages."""
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """All that it sees."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    """What must not be repeated of what it says about its failures."""
    groups: Groups | None = None
    grace_s: float = EOF_GRACE_S
    """From the end of its input to SIGTERM."""
    wait_leaving: Callable[[], Awaitable[None]] = anyio.sleep_forever
    """Returns when this process is about to end."""


class Program:
    """A started program. Made by `run_program`."""

    def __init__(
        self, launch: Launch, process: Process, pipe: ProgramPipe, handler: Handler, said: Diagnostics
    ) -> None:
        self.name = launch.name
        self.process = process
        self.family = Family(process.pid)
        self.peer = Peer(pipe, handler, skips_long_lines=False)
        self.closing = anyio.Event()
        self.ended = anyio.Event()
        self._said = said
        self._secrets = launch.secrets

    async def request(self, method: str, params: JSONObject) -> Raw:
        """What the program answers. Raises: ExternalAgentFailed if it answers with an error, or ends."""
        return await self.result(method, self.peer.begin(method, params))

    async def result(self, method: str, answer: Answer) -> Raw:
        """What the program answers to the request `method`. Raises: as `request`."""
        try:
            return await answer.result()
        except Failure as failure:
            if self.peer.fault:
                raise self.failed(f"{self.peer.fault} before it answered {method}") from failure
            if self.peer.closed.is_set():
                await self._wait_exit()
                raise self.failed(f"{self._ending} before it answered {method}") from failure
            hint = "; log in with that program itself first" if failure.code == AUTH_REQUIRED else ""
            said = f"answered {method} with error {failure.code}: {failure.message}{hint}"
            raise self.failed(said, is_answer=True) from failure

    def failed(self, what: str, *, is_answer: bool = False) -> ExternalAgentFailed:
        """The error that says what the agent did, with the end of what it wrote to stderr, and without secrets."""
        words = self._said.last_words
        what = self._secrets.mask(what)
        if len(what) > _MOST_CHARS:
            what = f"{what[:_MOST_CHARS]}…"
        message = f"agent {self.name!r} {what}" + (f"; its last words: {words}" if words else "")
        return ExternalAgentFailed(message, is_answer=is_answer)

    async def aclose(self) -> None:
        """The program and everything in its group have ended. Shielded; bounded by the graces."""
        self.closing.set()
        with anyio.CancelScope(shield=True):
            await self.ended.wait()

    async def _wait_exit(self) -> None:
        with anyio.move_on_after(LAST_WORDS_S):
            await self.process.wait()

    @property
    def _ending(self) -> str:
        match self.process.returncode:
            case None:
                return "closed its output"
            case code if code < 0:
                return f"was killed by signal {-code}"
            case code:
                return f"ended with status {code}"


async def run_program(launch: Launch, handler: Handler, *, task_status: TaskStatus[Program]) -> None:
    """The program ran until it ended or was closed, and nothing of what it started is left.

    Raises, before it is started: ExternalAgentFailed if it cannot be. Cancelling ends it like closing, without the
    grace for its own end.
    """
    async with diagnostics(ByteMask(launch.secrets)) as said:
        pipe = ProgramPipe()
        try:
            process = await _open(launch, pipe, said)
            program = Program(launch, process, pipe, handler, said)
            try:
                await _serve(program, pipe, launch, task_status)
            finally:
                try:
                    await _end(program)
                finally:
                    if launch.groups is not None:
                        launch.groups.remove(process.pid)
                    program.ended.set()
        finally:
            pipe.close()


async def _end(program: Program) -> None:
    with anyio.move_on_after(TERM_GRACE_S + 2 * KILL_WAIT_S, shield=True):
        if program.family.is_alive:
            await program.family.end(term_s=TERM_GRACE_S, kill_s=KILL_WAIT_S)
        await program.process.wait()


async def _open(launch: Launch, pipe: ProgramPipe, said: Diagnostics) -> Process:
    try:
        return await pipe.start(launch.argv, cwd=launch.cwd, env=launch.env, stderr=said.file, groups=launch.groups)
    except (OSError, ValueError) as error:
        raise ExternalAgentFailed(
            f"agent {launch.name!r} cannot be started as {launch.argv[0]!r} in {str(launch.cwd)!r}: {error}"
        ) from error


async def _serve(program: Program, pipe: ProgramPipe, launch: Launch, task_status: TaskStatus[Program]) -> None:
    async def speak() -> None:
        await program.peer.run()
        program.closing.set()

    async def watch() -> None:
        await program.process.wait()
        with anyio.move_on_after(LAST_WORDS_S):
            await program.peer.closed.wait()
        program.closing.set()

    async def hasten(grace: anyio.CancelScope) -> None:
        await launch.wait_leaving()
        program.closing.set()
        grace.deadline = min(grace.deadline, anyio.current_time() + HASTE_S)

    grace = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(hasten, grace)
        async with anyio.create_task_group() as serving:
            serving.start_soon(speak)
            serving.start_soon(watch)
            task_status.started(program)
            await program.closing.wait()
            with anyio.move_on_after(LAST_WORDS_S):
                await program.peer.flushed()
            serving.cancel_scope.cancel()
        program.family.look()
        pipe.end_input()
        group.start_soon(pipe.drain)
        grace.deadline = min(grace.deadline, anyio.current_time() + launch.grace_s)
        with grace:
            await program.process.wait()
            with anyio.move_on_after(LEAVE_S):
                await program.family.wait_gone()
        group.cancel_scope.cancel()
