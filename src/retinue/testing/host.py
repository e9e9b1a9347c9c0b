"""A host with a scripted model that checks itself when it is left: scripts followed, logs balanced, nothing running."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

import anyio

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.agent.registry import Creation, Setup
from retinue.base.clock import Clock
from retinue.base.ids import SessionId, new_session_id
from retinue.host.host import Host, HostOptions, open_host
from retinue.session.events import SessionHeader
from retinue.session.invariants import tree_violations, violations
from retinue.session.store import SessionRecord, SessionStore, SessionSummary
from retinue.store.memory import MemoryStore
from retinue.testing.clock import FakeClock
from retinue.testing.model import ScriptedModel
from retinue.tools.tool import Tool

__all__ = [
    "MODEL",
    "all_sessions",
    "audit",
    "errors_of",
    "no_errors",
    "resume_agent",
    "scripted_host",
    "start_agent",
    "wait_at_rest",
]

MODEL = "model-1"
"""The model name that agents of a scripted host use by default."""

_PATIENCE_S = 20.0
"""After so long a host that does not come to rest is a failure that names its busy agents."""


@asynccontextmanager
async def scripted_host(
    model: ScriptedModel,
    *,
    store: SessionStore | None = None,
    clock: Clock | None = None,
    tools: Collection[Tool] = (),
    options: HostOptions | None = None,
    at_rest: bool = True,
    errors_logged: bool = False,
) -> AsyncGenerator[Host]:
    """A host whose agents ask `model`. It owns `store` (by default a new one in memory) and closes it.

    Left normally, it waits until every agent is idle, then fails if a log in the store breaks the rules of logs, if
    the model's scripts were not followed, or if anything logged an error. `at_rest=False` leaves turns open, as the
    end of a process does, and checks neither logs nor scripts; `errors_logged` allows logged errors.
    """
    clock = clock or FakeClock()
    store = store or MemoryStore(clock)
    options = options or HostOptions()
    default = AgentOptions(provider=model.provider, model=MODEL)
    with no_errors(errors_logged), ExitStack() as undo:
        async with open_host(store, clock, replace(options, options=options.options.over(default))) as host:
            undo.enter_context(host.add_client(model))
            for tool in tools:
                undo.enter_context(host.tools.add(tool))
            yield host
            if at_rest:
                await wait_at_rest(host)
                await audit(host.sessions.store)
        if at_rest:
            model.check()


async def start_agent(
    host: Host,
    label: str = "R",
    *,
    id: SessionId | None = None,
    options: AgentOptions | None = None,
    setup: Setup | None = None,
) -> Agent:
    """A new root agent of the host; `options` are laid over the host's own."""
    header = SessionHeader(id=id or new_session_id(), created_at=host.clock.now_ms(), cwd=str(host.environment.cwd))
    chosen = host.options.options if options is None else options.over(host.options.options)
    return await host.agents.create(Creation(header=header, options=chosen, label=label, setup=setup))


async def resume_agent(
    host: Host, id: SessionId, *, options: AgentOptions | None = None, setup: Setup | None = None
) -> Agent:
    """The live agent of a stored session; `options` as in `start_agent`."""
    chosen = host.options.options if options is None else options.over(host.options.options)
    return await host.agents.resume(id, options=chosen, setup=setup)


async def wait_at_rest(host: Host) -> None:
    """Every agent is idle and all they wrote is stored. Raises: AssertionError naming those that go on too long."""
    with anyio.move_on_after(_PATIENCE_S):
        while True:
            for agent in host.agents.list():
                await agent.wait_idle()
            await host.sessions.writer.committed()
            if all(agent.status == "idle" for agent in host.agents.list()):
                return
    busy = [f"{agent.label or agent.id} ({agent.phase})" for agent in host.agents.list() if agent.status != "idle"]
    raise AssertionError(f"agents did not come to rest within {_PATIENCE_S:.0f} s: {', '.join(busy)}")


async def all_sessions(store: SessionStore) -> list[SessionSummary]:
    """Every session of the store, parents before their children."""
    found = {summary.header.id: summary for summary in await store.roots()}
    todo = list(found)
    for id in todo:
        for child in await store.children(id):
            if child.header.id not in found:
                found[child.header.id] = child
                todo.append(child.header.id)
    return list(found.values())


async def audit(store: SessionStore) -> None:
    """Every log in the store, with its rows, keeps the rules of logs. Raises: AssertionError with all that do not."""
    problems: list[str] = []
    records: list[SessionRecord] = []
    for summary in await all_sessions(store):
        id = summary.header.id
        stored = await store.read(id)
        rows = await store.read_rows(id)
        records.append(SessionRecord(header=stored.header, events=stored.events, rows=rows))
        problems.extend(f"{id}: {problem}" for problem in violations(stored.events, rows))
        if summary.open_turn is not None:
            problems.append(f"{id}: turn {summary.open_turn} is still open")
    problems.extend(f"{id}: {problem}" for id, problem in tree_violations(records))
    if problems:
        raise AssertionError("logs break the rules:\n- " + "\n- ".join(problems))


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(_shown(record))


@contextmanager
def errors_of(logger: logging.Logger) -> Generator[list[str]]:
    """What the logger and those below it log as errors meanwhile, in words."""
    handler = _Errors()
    logger.addHandler(handler)
    try:
        yield handler.errors
    finally:
        logger.removeHandler(handler)


@contextmanager
def no_errors(allowed: bool = False) -> Generator[None]:
    """Nothing in the block logged an error of Retinue's, unless that is allowed. Raises: AssertionError with all."""
    with errors_of(logging.getLogger("retinue")) as errors:
        yield
    if errors and not allowed:
        raise AssertionError("errors were logged:\n- " + "\n- ".join(errors))


def _shown(record: logging.LogRecord) -> str:
    cause = record.exc_info[1] if record.exc_info else None
    return record.getMessage() + (f": {cause!r}" if cause is not None else "")
