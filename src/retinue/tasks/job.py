"""Jobs: an async piece of work with a start-up, a result and a release, run as a task.

It owns the order of those three, the cancel scope that covers start-up and run, and which ending each mixture of
failures is. It knows no kind of work. Source: behaviour TS-29..35, SS-24..26.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.errors import MissingSeam, RetinueError, error_record
from retinue.tasks.record import Completed, Failed, Hooks, Killed, TaskOutcome, TaskSnapshot
from retinue.tasks.runtime import Tasks

__all__ = ["RELEASE_WAIT_S", "Job", "Stop", "outcome_of_ending", "start_job"]

R = TypeVar("R")

RELEASE_WAIT_S = 30.0
"""How long a release may take before the task says that it may have left something behind."""
_DEFAULT_REASON = "it was killed"


class Stop:
    """The job's own cancellation: whether somebody asked for the end, and why. No call that started the job has it."""

    __slots__ = ("reason", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.reason: str | None = None

    @property
    def is_requested(self) -> bool:
        """Somebody asked for the end."""
        return self.reason is not None

    def request(self, reason: str | None) -> None:
        """What runs is cancelled; the first reason counts."""
        if self.reason is None:
            self.reason = reason or _DEFAULT_REASON
            self.scope.cancel(self.reason)


class Job(Struct, Generic[R], frozen=True, kw_only=True):
    """What runs. A cancelled `open` leaves nothing behind; what it returned is always released, once."""

    open: Callable[[Stop], Awaitable[R]]
    """Starts the work up. Cancelled, it cleans up and re-raises; what it raises instead counts as a failed clean-up."""
    result: Callable[[R], Awaitable[TaskOutcome]]
    """Waits for the end. Cancelled, it stops the work and re-raises."""
    release: Callable[[R], Awaitable[None]] | None = None
    """Lets go of everything. Shielded, and over before the task shows any outcome."""
    read_output: Callable[[], str] | None = None
    """The output since the last read, for a task that streams."""


async def start_job(
    tasks: Tasks | None, job: Job[R], *, kind: str, label: str, owner: Agent | None, output_limit: int | None = None
) -> TaskSnapshot:
    """The job runs as a task of `owner` under a cancel scope of its own.

    A caller that is cancelled already starts nothing, and later cancellation of the caller does not touch the job,
    whose body begins once its start is committed. Raises: MissingSeam without a runtime, and what `Tasks.start` raises.
    """
    if tasks is None:
        raise MissingSeam(
            "background work needs the plugin 'tasks', which is not loaded; load it, or do it in the foreground"
        )
    await anyio.lowlevel.checkpoint_if_cancelled()
    run = _JobRun(job, owner)
    hooks = Hooks(cancel=run.stop.request, done=run.done, read_output=job.read_output)
    return tasks.start(kind=kind, label=label, owner=owner, starter=lambda: hooks, output_limit=output_limit)


class _JobRun(Generic[R]):
    """One job on its way."""

    def __init__(self, job: Job[R], owner: Agent | None) -> None:
        self.stop = Stop()
        self._job = job
        self._owner = owner
        self._opened: tuple[R] | None = None
        self._outcome: TaskOutcome | None = None
        self._error: Exception | None = None
        self._release_error: Exception | None = None

    async def done(self) -> TaskOutcome:
        """How it ended, after everything was released. Cancelled from outside, it releases too."""
        try:
            with self.stop.scope:
                try:
                    await self._work()
                except Exception as error:
                    self._error = error
        finally:
            if self._opened is not None and self._job.release is not None:
                await self._release(self._job.release, *self._opened)
        return self._verdict()

    async def _work(self) -> None:
        if self._owner is not None:
            sessions = self._owner.environment.sessions
            await sessions.writer.durable()
            self._owner.session.check()
            await sessions.confirm(self._owner.session.hold)
        if not self.stop.is_requested:
            self._opened = (await self._job.open(self.stop),)
            self._outcome = await self._job.result(*self._opened)

    async def _release(self, release: Callable[[R], Awaitable[None]], opened: R) -> None:
        with anyio.move_on_after(RELEASE_WAIT_S, shield=True) as bound:
            try:
                await release(opened)
            except Exception as error:
                self._release_error = error
        if bound.cancelled_caught:
            self._release_error = TimeoutError(f"it did not end within {RELEASE_WAIT_S:g} s; it may be orphaned")

    def _verdict(self) -> TaskOutcome:
        """The ending; where several things went wrong, all of them are in its detail."""
        parts: list[str] = []
        if isinstance(self._outcome, Failed):
            parts.append(self._outcome.detail)
        if self._error is not None and not self._is_refusal():
            parts.append(_words(self._error))
        if self._release_error is not None:
            parts.append(f"releasing it failed: {_words(self._release_error)}")
        if parts:
            asked = [f"stopped ({self.stop.reason})"] if self.stop.is_requested else []
            return Failed("; ".join([*asked, *parts]))
        return self._outcome or Killed(self.stop.reason)

    def _is_refusal(self) -> bool:
        """A start-up that gave up since it was asked to, in its own way: no failed clean-up. Source: TS-34."""
        is_starting = self._opened is None and self.stop.is_requested
        return is_starting and self._error is not None and not _came_from_cancellation(self._error)


def _came_from_cancellation(error: BaseException) -> bool:
    """It was raised while a cancellation was being handled."""
    cancelled = anyio.get_cancelled_exc_class()
    seen: set[int] = set()
    todo: list[BaseException] = [error]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, cancelled):
            return True
        inner: tuple[BaseException, ...] = getattr(one, "exceptions", ())
        todo.extend(each for each in (*inner, one.__cause__, one.__context__) if each is not None)
    return False


def _words(error: Exception) -> str:
    code, message = error_record(error)
    return f"{code}: {message}" if isinstance(error, RetinueError) else message


def outcome_of_ending(ending: str, text: str, diagnostic: str | None = None) -> TaskOutcome:
    """The outcome of a one-shot run with that ending; an unknown ending is a failure. Source: behaviour SS-25."""
    match ending:
        case "completed":
            return Completed(text)
        case "aborted":
            return Killed(diagnostic)
        case _:
            return Failed(ending if diagnostic is None else f"{ending}: {diagnostic}")
