"""Questions on the terminal: one after the other on stderr, answered on stdin while the live tree stands still."""

from __future__ import annotations

import os
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from retinue.base.side_tasks import side_tasks
from retinue.cli.headless.progress import Progress, say
from retinue.cli.text import brief, plain
from retinue.errors import RetinueError
from retinue.host.approvals import Answer, Approvals, Question

__all__ = ["Terminal", "asked_at", "described", "parse_answer"]

_LINES = 20
_WIDTH = 400


class Terminal:
    """An Answerer. `run` asks what it hears of, oldest first."""

    def __init__(self, approvals: Approvals, progress: Progress, fd: int) -> None:
        """`fd` is the terminal that answers are read from."""
        self._approvals = approvals
        self._progress = progress
        self._fd = fd
        self._waiting: dict[str, Question] = {}
        self._heard = anyio.Event()
        self._current: tuple[str, anyio.CancelScope] | None = None

    def asked(self, question: Question) -> None:
        """See Answerer."""
        self._waiting[question.id] = question
        self._heard.set()

    def withdrawn(self, question: Question) -> None:
        """See Answerer."""
        self._waiting.pop(question.id, None)
        if self._current is not None and self._current[0] == question.id:
            self._current[1].cancel()

    async def run(self) -> None:
        """Every question is asked when its turn comes; runs until it is cancelled."""
        while True:
            while not self._waiting:
                self._heard = anyio.Event()
                await self._heard.wait()
            async with self._progress.paused():
                while self._waiting:
                    await self._ask(next(iter(self._waiting.values())))

    async def _ask(self, question: Question) -> None:
        with anyio.CancelScope() as scope:
            self._current = question.id, scope
            try:
                answer = await self._answer(question)
                del self._waiting[question.id]
                self._approvals.answer(question.id, answer)
            except RetinueError as error:
                say(f"  the answer came too late: {error}")
            finally:
                self._current = None
        if scope.cancelled_caught:
            say("  no answer is needed any more")

    async def _answer(self, question: Question) -> Answer:
        with suppress(termios.error):  # what was typed before the question is no answer to it
            termios.tcflush(self._fd, termios.TCIFLUSH)
        say(described(question, more=len(self._waiting) - 1))
        while True:
            await anyio.wait_readable(self._fd)
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                return Answer(verb="reject", words="the user has left without an answer")
            answer = parse_answer(data.decode("utf-8", "replace"))
            if answer is not None:
                return answer
            say("  please answer y, a or n, or say what to do instead")


def described(question: Question, *, more: int = 0) -> str:
    """The question as people read it; `more` questions wait behind it."""
    who = " > ".join(brief(name) for name in question.path)
    behind = f" ({more} more wait)" if more > 0 else ""
    about = question.about
    if about is None:
        about = ", ".join(f"{name}: {value}" for name, value in question.arguments.items())
    lines = [line if len(line) <= _WIDTH else line[:_WIDTH] + "…" for line in plain(about).split("\n")]
    left_out = [f"… {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
    return "\n".join(
        (
            f"? {who} ({question.agent}) wants to call {brief(question.tool)}{behind}",
            *(f"    {line}" for line in (*lines[:_LINES], *left_out)),
            f"  y: once · a: whatever the rule {brief(question.rule)} asks this agent, from now on · n: no · "
            "or words for the agent, as a no",
        )
    )


def parse_answer(line: str) -> Answer | None:
    """What the line says; None if it says nothing."""
    words = plain(line).strip()
    match words.lower():
        case "":
            return None
        case "y" | "yes":
            return Answer(verb="allow")
        case "a" | "always":
            return Answer(verb="allow", always=True)
        case "n" | "no":
            return Answer(verb="reject")
        case _:
            return Answer(verb="reject", words=words)


@asynccontextmanager
async def asked_at(terminal: Terminal, approvals: Approvals) -> AsyncGenerator[None]:
    """Questions are asked at the terminal meanwhile. What is open afterwards stays open."""
    async with side_tasks() as group:
        group.start_soon(terminal.run)
        with approvals.answered_by(terminal):
            yield
