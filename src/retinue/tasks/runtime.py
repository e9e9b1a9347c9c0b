"""The task runtime: start, look, read, kill, wait, and the end of owners. One for every kind of background work.

It owns the records and their admission. It knows neither tools nor producers: surfaces and starters bring those.
"""

from __future__ import annotations

import asyncio
import logging
import math

import anyio

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.base.scope import Undo
from retinue.errors import AgentClosing, BadInput, RetinueError, TaskLimit
from retinue.host.host import Host, Seam
from retinue.tasks.entry import Bucket, Entry, Waiter
from retinue.tasks.record import KillAnswer, Starter, TaskRead, TaskSnapshot
from retinue.tasks.records import Records
from retinue.tasks.settlement import Settlement
from retinue.tasks.surfaces import Surface, Surfaces
from retinue.tasks.teardown import end_all

__all__ = ["MAX_PER_OWNER", "OWNER_DISPOSED", "TASKS", "TEARDOWN_WAIT_S", "Tasks"]

MAX_PER_OWNER = 10
"""Live tasks of one owner. Source: behaviour TK-13."""
TEARDOWN_WAIT_S = 65.0
"""How long disposal waits for stopped tasks: longer than a well-behaved producer takes to stop and to release."""
OWNER_DISPOSED = "its owner was disposed"
_RUNTIME_CLOSED = "the task runtime is closing"

_log = logging.getLogger("retinue")


class Tasks:
    """The tasks of a host. `caller` is the session that asks: it sees its own tasks and those without an owner."""

    def __init__(
        self, host: Host, *, max_per_owner: int = MAX_PER_OWNER, teardown_wait_s: float = TEARDOWN_WAIT_S
    ) -> None:
        if max_per_owner < 1:
            raise BadInput(f"max_per_owner must be at least 1, not {max_per_owner}")
        self._host = host
        self._max_per_owner = max_per_owner
        self._teardown_wait_s = teardown_wait_s
        self._surfaces = Surfaces()
        self._settlement = Settlement(host, self._surfaces)
        self._records = Records(host.agents)
        self._begun = 0

    def attach(self, surface: Surface, scope: Agent | None = None) -> Undo:
        """`surface` serves every owner, or with `scope` that agent alone, until the result is called."""
        return self._surfaces.attach(surface, scope)

    # Starting

    def start(
        self, *, kind: str, label: str, owner: Agent | None, starter: Starter, output_limit: int | None = None
    ) -> TaskSnapshot:
        """The work has begun and is registered, and its start is logged.

        Raises, in this order and before `starter` is called: MissingSeam if no control surface serves the owner;
        BadInput for an empty kind or label or a limit that is no positive integer; AgentClosing unless the owner is
        the live agent of its session; TaskLimit. What `starter` raises leaves nothing behind; after it returned,
        nothing can fail.
        """
        bucket = self._admit(kind, label, owner, output_limit)
        hooks = starter()
        number = self._records.next_number(bucket, kind)
        entry = Entry(
            id=f"{kind}-{number}",
            order=self._begun,
            kind=kind,
            label=label,
            owner=owner,
            output_limit=output_limit,
            hooks=hooks,
            now_ms=self._host.clock.now_ms(),
        )
        self._begun += 1
        bucket.add(entry, number)
        self._settlement.begin(entry)
        self._settlement.changed(owner)
        return entry.snapshot()

    def _admit(self, kind: str, label: str, owner: Agent | None, output_limit: int | None) -> Bucket:
        self._surfaces.require(owner)
        for name, value in (("kind", kind), ("label", label)):
            if not value.strip():
                raise BadInput(f"a task needs a {name}; it is empty")
        if output_limit is not None and (type(output_limit) is not int or output_limit < 1):
            raise BadInput(f"output_limit must be a positive number of bytes, not {output_limit!r}")
        bucket = self._records.unowned if owner is None else self._bucket(owner)
        if bucket.live >= self._max_per_owner:
            raise TaskLimit(
                f"{self._max_per_owner} background tasks are running, which is the limit; "
                "kill one that is not needed or wait for one to end, then try again"
            )
        return bucket

    def _bucket(self, owner: Agent) -> Bucket:
        """The tasks of a live owner, whose end will end them. Raises: AgentClosing, the failure of its session."""
        agents, sessions = self._host.agents, self._host.sessions
        is_current = agents.is_live(owner) and sessions.live(owner.id) is owner.session
        if not is_current or owner.is_closing or agents.is_suspending:
            raise AgentClosing(f"agent {owner.id!r} is not live any more, or not yet; it cannot own a task")
        owner.session.check()
        bucket = self._records.get(owner)
        if bucket is None:
            bucket = self._records.add(owner)
            owner.scope.push_async_callback(self._end_owner, bucket)
        return bucket

    # Looking

    def get(self, id: str, caller: SessionId | None) -> TaskSnapshot:
        """The task. Raises: NotFound, Unauthorized for a task of another session."""
        return self._records.find(id, caller).snapshot()

    def list(self, caller: SessionId | None) -> tuple[TaskSnapshot, ...]:
        """All tasks that the caller can name, in the order in which they began."""
        return tuple(entry.snapshot() for entry in self._records.visible(caller))

    def live(self, owner: Agent | None) -> int:
        """How many tasks of this exact owner have not ended."""
        bucket = self._records.get(owner)
        return 0 if bucket is None else bucket.live

    # Reading, stopping, waiting

    def read(self, id: str, caller: SessionId | None) -> TaskRead:
        """What is new of a stream, or the final output. Reading a task that has ended marks it reported.

        Raises: NotFound, Unauthorized, and what the producer's `read_output` raises: nothing is marked then.
        """
        entry = self._records.find(id, caller)
        text = entry.read()
        entry.is_reported = entry.is_reported or entry.is_terminal
        return TaskRead(text, entry.snapshot())

    def kill(self, id: str, caller: SessionId | None, reason: str | None = None) -> tuple[KillAnswer, TaskSnapshot]:
        """The task was asked to end, or had ended; either way its owner needs no notice. Pending output stays.

        Raises: NotFound, Unauthorized, and what the producer's `cancel` raises: nothing is changed then.
        """
        entry = self._records.find(id, caller)
        if entry.is_terminal:
            entry.is_reported = True
            return "already-finished", entry.snapshot()
        entry.hooks.cancel(reason)
        _log.info("task %s was asked to end: %s", entry.id, reason or "no reason given")
        if entry.stopping(reason):
            self._settlement.changed(entry.owner)
        return "cancellation-requested", entry.snapshot()

    def kill_all(self, owner: Agent, reason: str) -> None:
        """Every task of the owner was asked to end, and needs no notice. One that cannot be asked goes on."""
        for task in self.list(owner.id):
            if task.status == "running":
                try:
                    self.kill(task.id, owner.id, reason)
                except RetinueError as error:
                    _log.warning("task %s of %s goes on: %s", task.id, owner.id, error)

    async def wait(self, id: str, caller: SessionId | None, timeout_s: float) -> TaskSnapshot:
        """The task as it ended, which marks it reported, or as it was after `timeout_s`, which does not.

        Cancelling ends this wait alone: from that instant it counts no more. A wait that the end released returns,
        whatever happens later. Raises: NotFound, Unauthorized, BadInput unless `timeout_s` is positive and finite, and
        AgentClosing while the host goes away.
        """
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise BadInput(f"a wait needs a positive, finite time, not {timeout_s} s")
        entry = self._records.find(id, caller)
        if entry.is_terminal:
            entry.is_reported = True
            return entry.snapshot()
        if self._host.agents.is_suspending:
            raise AgentClosing(f"nobody can wait for task {id!r} any more: its host is going away")
        waiter: Waiter = asyncio.get_running_loop().create_future()
        entry.waiters.append(waiter)
        timer = anyio.CancelScope()
        self._host.start(lambda: self._expire(entry, waiter, timer, timeout_s))
        try:
            return await waiter
        finally:
            timer.cancel()
            if waiter in entry.waiters:
                entry.waiters.remove(waiter)

    async def _expire(self, entry: Entry, waiter: Waiter, timer: anyio.CancelScope, timeout_s: float) -> None:
        with timer:
            await self._host.clock.sleep(timeout_s)
            if not waiter.done():
                waiter.set_result(entry.snapshot())

    # The end

    async def _end_owner(self, bucket: Bucket) -> None:
        """Every task of the owner has ended and is forgotten. Part of the owner's disposal. Source: TK-34..37."""
        if self._host.agents.is_suspending:
            return
        await end_all(bucket.entries.values(), OWNER_DISPOSED, self._settlement, wait_s=self._teardown_wait_s)
        self._forget(bucket)

    async def aclose(self) -> None:
        """No task can start, all have ended, and agents that stay alive have nothing of this any more.

        The ends are not logged: the owners' next load says that these tasks died. While the host suspends it cuts the
        tasks off itself, and nothing is awaited here. Shielded and bounded.
        """
        self._surfaces.close()
        if self._host.agents.is_suspending:
            return
        buckets = list(self._records)
        entries = [entry for bucket in buckets for entry in bucket.entries.values()]
        for entry in entries:
            entry.is_abandoned = True
        await end_all(entries, _RUNTIME_CLOSED, self._settlement, wait_s=self._teardown_wait_s)
        for bucket in buckets:
            self._forget(bucket)

    def _forget(self, bucket: Bucket) -> None:
        if self._records.remove(bucket):
            self._settlement.changed(bucket.owner)


TASKS: Seam[Tasks] = Seam("tasks")
"""Where the task runtime of a host is found."""
