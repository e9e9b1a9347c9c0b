"""Headless work from its first moment to its exit code: open, begin, wait or stop, say what it came to."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeAlias

import anyio

from retinue.agent.phase import Cause
from retinue.agent.signals import ChunksWithdrawn
from retinue.base.ids import SessionId, new_session_id
from retinue.base.json import JSONObject
from retinue.cli.failures import described, exit_code, say, say_unwritten
from retinue.cli.headless import progress
from retinue.cli.headless.asking import Terminal, asked_at
from retinue.cli.headless.budget import limit_tokens
from retinue.cli.headless.control import Control, Finished
from retinue.cli.headless.job import Job, can_ask
from retinue.cli.headless.output import Output
from retinue.cli.headless.progress import Progress
from retinue.compose import app as compose
from retinue.compose.app import App
from retinue.compose.dotenv import with_dotenv
from retinue.compose.run import Result, Run
from retinue.compose.tree import usage_object
from retinue.errors import RetinueError, StoreFailure
from retinue.host.approvals import APPROVALS
from retinue.model.content import Usage
from retinue.session.events import ErrorRecord
from retinue.subagent.lifecycle import ExternalCall

__all__ = ["Opener", "open_configured", "perform"]

Opener: TypeAlias = Callable[[Job], AbstractAsyncContextManager[App]]

_RESUMABLE = ("aborted", "timeout", "over-budget")
_CUT_OFF = ErrorRecord("INTERRUPTED", "it was interrupted with work left, and all of it is kept")
_LIMITS = {
    "timeout": ErrorRecord("TIMEOUT", "the time limit was reached while agents or tasks of the tree were at work"),
    "over-budget": ErrorRecord("OVER_BUDGET", "the token limit was reached while agents or tasks had more to do"),
}
"""Why a tree was stopped whose root had completed its turn, by the detail of the cause."""


def open_configured(job: Job) -> AbstractAsyncContextManager[App]:
    """The Retinue that the command line configures. Raises: ConfigError."""
    folder = job.common.folder
    config = job.common.load(with_dotenv(os.environ, folder))
    return compose.open(config=config, cwd=folder)


def perform(job: Job, opener: Opener = open_configured, ended: Callable[[SessionId], object] | None = None) -> int:
    """The job is done, its result is on stdout; the answer is the exit code.

    `ended` is called at the end with the session's id, if there is a session.
    """
    work = _Work(job, opener)
    try:
        code = anyio.run(work.perform)
        if ended is not None and work.root is not None and work.is_stored:
            ended(work.root)
        return code
    except KeyboardInterrupt:  # before signals were ours
        work.stopped_early()
        return 130
    except SystemExit:
        work.stopped_early()
        raise


class _Work:
    """One job."""

    def __init__(self, job: Job, opener: Opener) -> None:
        self.job = job
        self.opener = opener
        self.root: SessionId | None = None
        self.is_stored = False
        """There is a session of that id."""
        self.run: Run | None = None
        self.output = Output(job.output, self.output_closed)
        self.progress = Progress(live=job.output != "jsonl")
        self.control: Control | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def output_closed(self) -> None:
        """Called from another thread: nobody reads stdout any more."""
        if self.control is not None and self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing is left to stop
                self.loop.call_soon_threadsafe(self.control.suspend)

    def stopped_early(self) -> None:
        """The result of a run that a signal ended before anything began."""
        self.output.result(self.nothing("aborted", "INTERRUPTED", "it was interrupted before it began"))
        self.output.flush(1.0)

    def at_once(self, code: int) -> None:
        """The process ends now, since a second signal came or a tool does not let go."""
        if self.run is None:
            self.output.result(self.nothing("aborted", "INTERRUPTED", "it was ended at once"))
        else:
            left = self.control.at_work() if self.control is not None else ()
            self.output.result(self.cut_off(self.run, Finished(abandoned=left)).as_object())
        self.output.flush(0.2)
        progress.restore()
        os._exit(code)

    async def perform(self) -> int:
        """The exit code, with everything said."""
        self.loop = asyncio.get_running_loop()
        self.control = control = Control(self.at_once)
        code = 1
        async with anyio.create_task_group() as group:
            await group.start(control.listen)
            group.start_soon(control.hasten)
            if self.job.timeout_s is not None:
                group.start_soon(control.expire, self.job.timeout_s)
            code = await self.guarded(control)
            control.is_over = True
            failure = await self.output.finish()
            if failure is not None:
                say_unwritten(failure)
                code = code or 1
            group.cancel_scope.cancel()
        return control.exit_code or code

    async def guarded(self, control: Control) -> int:
        """The exit code; whatever happened, the result is written."""
        result: Result | None = None
        try:
            with control.opening, progress.warnings_shown():
                result = await self.work(control)
        except Exception as error:  # the boundary: whatever it is, whoever reads stdout gets a result
            code, message = described(error)
            self.output.result(self.nothing("error", code, message))
            say(code, message)
            if self.is_stored and self.root is not None and self.job.is_resumable and isinstance(error, StoreFailure):
                progress.say(f"go on with: {self.again(self.root)}")
            if not isinstance(error, RetinueError) or os.environ.get("RETINUE_DEBUG"):
                progress.say("".join(traceback.format_exception(error)).rstrip())
            return exit_code(error)
        if result is None:
            is_limit = control.limit is not None and not control.is_suspending
            why = "TIMEOUT" if is_limit else "INTERRUPTED"
            self.output.result(
                self.nothing("timeout" if is_limit else "aborted", why, "it was stopped before it began")
            )
            say(why, "it was stopped before it began")
            if self.job.session is not None and self.root is not None:
                progress.say(f"go on with: {self.again(self.root)}")
            return 1
        self.output.result(result.as_object())
        return self.explain(result, control)

    async def work(self, control: Control) -> Result | None:
        """What the run came to, with everything closed behind it; None if it was stopped before it began."""
        job = self.job
        result: Result | None = None
        async with self.opener(job) as app:
            if not control.opened():
                return None
            with ExitStack() as stack:
                stack.enter_context(self.output.following(app.host, lambda: self.root, stream=job.stream))
                stack.enter_context(app.host.sessions.observe(self.progress.watch.observe, durable=True))
                stack.enter_context(app.host.bus.on(ChunksWithdrawn, self.progress.watch.withdrawn))
                stack.enter_context(app.host.bus.on(ExternalCall, self.progress.watch.external))
                if job.max_tokens is not None:
                    spent = Cause("limit", "over-budget")
                    stack.enter_context(
                        limit_tokens(app.host, lambda: self.run, job.max_tokens, lambda: control.stop(spent))
                    )
                async with self.progress.shown(), self.answered(app):
                    with control.beginning:
                        self.run = await self.begin(app)
                    if self.run is not None:
                        control.attach(self.run, app.host)
                        with anyio.CancelScope(shield=True):
                            result = await self.come_to(self.run, control)
        return result

    @asynccontextmanager
    async def answered(self, app: App) -> AsyncGenerator[None]:
        """Whoever shall answer for calls that need an approval does so meanwhile."""
        approvals = app.host.find(APPROVALS)
        ask = self.job.ask or ("terminal" if can_ask() else None)
        if approvals is None or ask is None:
            yield
        elif ask == "terminal":
            async with asked_at(Terminal(approvals, self.progress, sys.stdin.fileno()), approvals):
                yield
        else:
            approvals.policy = ask
            yield

    async def come_to(self, run: Run, control: Control) -> Result:
        """The result, once nobody works any more or has to stop."""
        finished = await control.finished(self.job.on_finish, self.job.drain_timeout_s)
        await run.agent.environment.sessions.writer.durable()
        if control.is_suspending:
            return self.cut_off(run, finished)
        unsettled = await self.unsettled(run, finished)
        result = replace(run.so_far(), stopped=finished.stopped, abandoned=(*finished.abandoned, *unsettled))
        if control.limit is not None and result.error is None and result.abandoned:
            result = replace(result, error=_LIMITS.get(control.limit.detail or ""))
        return result

    async def unsettled(self, run: Run, finished: Finished) -> list[SessionId]:
        """Who else of the tree still owes work, although nobody is at it: the store took no more of what they did."""
        owing = await run.agent.environment.sessions.store.owing(run.session_id)
        return [id for id in owing if id != run.session_id and id not in finished.abandoned]

    def cut_off(self, run: Run, finished: Finished) -> Result:
        """The result of a run that the end of its process leaves open."""
        result = replace(run.so_far(), stopped=finished.stopped, abandoned=finished.abandoned)
        is_done = result.error is not None or not result.abandoned
        if run.agent.failure is None and (run.is_at_work or not is_done):
            how = f"; go on with: {self.again(result.session_id)}" if self.job.is_resumable else ""
            result = replace(result, error=ErrorRecord(_CUT_OFF.code, _CUT_OFF.message + how))
        return result

    def again(self, root: SessionId) -> str:
        """The command that goes on with the run."""
        return f"retinue resume {root}{self.job.common.again}"

    async def begin(self, app: App) -> Run:
        """The run is at work, and people know its id."""
        job = self.job
        if job.session is None:
            self.begins(new_session_id())
            agent = await app.agent(id=self.root)
            self.is_stored = True
            self.progress.announce()
            return await app.run(job.task or "", agent=agent)
        root = await app.root(job.session)
        self.begins(root)
        self.is_stored = True
        self.progress.announce()
        return await app.resume(root, job.task, key=job.key)

    def begins(self, root: SessionId) -> None:
        """Events of that tree are the run's."""
        self.root = self.progress.watch.root = root

    def explain(self, result: Result, control: Control) -> int:
        """The exit code, with what people must know on stderr."""
        if result.error is not None:  # the line below says how to go on
            error = _CUT_OFF if result.error.code == _CUT_OFF.code else result.error
            say(error.code, error.message)
        if result.outcome == "completed" and result.abandoned:
            say("ABANDONED", f"still at work when the wait ended: {', '.join(result.abandoned)}")
        has_failed = self.run is not None and self.run.agent.failure is not None  # its turn is open in its log
        is_cut = result.outcome in _RESUMABLE or control.is_suspending or bool(result.abandoned) or has_failed
        if self.job.is_resumable and is_cut:
            progress.say(f"go on with: {self.again(result.session_id)}")
        if result.outcome != "completed":
            return 1
        return 3 if result.abandoned else 0

    def nothing(self, outcome: str, code: str, message: str) -> JSONObject:
        """The result object where there is no result."""
        return {
            "type": "result",
            "session_id": self.root if self.is_stored else None,
            "outcome": outcome,
            "output": "",
            "usage": usage_object(Usage()),
            "agents": [],
            "abandoned": [],
            "stopped": [],
            "error": {"code": code, "message": message},
        }
