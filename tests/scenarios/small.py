"""A host with delegation and reports alone, over any store: for tests that open thousands of hosts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from retinue.agent.environment import AgentOptions
from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.host.host import Host, HostOptions, open_host
from retinue.plugins import report, subagent
from retinue.session.invariants import tree_violations, violations
from retinue.session.store import SessionRecord, SessionStore
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.testing.host import MODEL, all_sessions
from retinue.testing.model import ScriptedModel

__all__ = ["check_tree", "of", "small_host"]


@asynccontextmanager
async def small_host(model: ScriptedModel, store: SessionStore, clock: Clock) -> AsyncGenerator[Host]:
    """Left, it suspends: turns and activations stay open in the store."""
    options = HostOptions(options=AgentOptions(provider=model.provider, model=MODEL))
    async with open_host(store, clock, options) as host:
        with host.add_client(model):
            async with (
                subagent.plugin(host, subagent.SubagentConfig(background_mode="continuable")),
                report.plugin(host, report.ReportConfig()),
            ):
                try:
                    yield host
                finally:
                    await host.suspend()


def of(host: Host) -> Continuations:
    return host.require(CONTINUATIONS, needed_by="a test")


async def check_tree(store: SessionStore, root: SessionId) -> list[SessionRecord]:
    """Everything has come to rest and every log, mailbox and edge of the tree is in order; the records."""
    problems: list[str] = []
    records: list[SessionRecord] = []
    for summary in await all_sessions(store):
        id = summary.header.id
        stored, rows = await store.read(id), await store.read_rows(id)
        records.append(SessionRecord(header=stored.header, events=stored.events, rows=rows))
        problems.extend(f"{id}: {problem}" for problem in violations(stored.events, rows, quiescent=True))
    problems.extend(f"{id}: {problem}" for id, problem in tree_violations(records))
    owing = await store.owing(root)
    assert not problems, "\n".join(problems)
    assert not owing, f"these still owe work: {owing}"
    return records
