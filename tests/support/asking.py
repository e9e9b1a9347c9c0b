"""Somebody who can be asked: hears of questions, and answers when the test says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from retinue.base.ids import SessionId
from retinue.host.approvals import APPROVALS, Answer, Approvals, Question
from retinue.host.host import Host
from retinue.plugins import permissions, report, subagent
from retinue.session.events import ApprovalAsked, ApprovalDecided, Event
from retinue.session.store import SessionStore
from retinue.testing.host import scripted_host
from retinue.testing.model import ScriptedModel
from retinue.tools.tool import Tool
from tests.support.delegation import STOCK, quiet

__all__ = ["ALLOW", "ALWAYS", "REJECT", "Person", "approvals", "asking", "by_label", "decisions"]

ALLOW = Answer(verb="allow")
ALWAYS = Answer(verb="allow", always=True)
REJECT = Answer(verb="reject")


class Person:
    """An Answerer. `heard` is everything that was asked, `gone` what was withdrawn."""

    def __init__(self) -> None:
        self.heard: list[Question] = []
        self.gone: list[Question] = []
        self._changed = anyio.Event()

    def asked(self, question: Question) -> None:
        self.heard.append(question)
        self._change()

    def withdrawn(self, question: Question) -> None:
        self.gone.append(question)
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def of(self, who: str, count: int = 1) -> Question:
        """The `count`-th question of the agent with that label or id, waited for."""
        while len(found := [question for question in self.heard if who in (question.label, question.agent)]) < count:
            await self._changed.wait()
        return found[count - 1]

    async def wait_withdrawn(self, id: str) -> None:
        while all(question.id != id for question in self.gone):
            await self._changed.wait()


def approvals(host: Host) -> Approvals:
    return host.require(APPROVALS, needed_by="a test")


@asynccontextmanager
async def asking(
    model: ScriptedModel,
    store: SessionStore,
    *,
    ask: Sequence[str] = ("touch",),
    tools: Sequence[Tool] = (),
    person: Person | None = None,
    policy: permissions.PermissionsConfig | None = None,
    delegation: subagent.SubagentConfig = STOCK,
    at_rest: bool = True,
) -> AsyncGenerator[Host]:
    """A host with delegation whose rules ask about the tools in `ask`, and `person` is there to answer."""
    config = policy or permissions.PermissionsConfig(rules=permissions.RulesConfig(ask=tuple(ask)))
    async with (
        scripted_host(model, store=store, tools=tools, at_rest=at_rest) as host,
        permissions.plugin(host, config),
        subagent.plugin(host, delegation),
        report.plugin(host, report.ReportConfig()),
    ):
        if person is not None:
            approvals(host).answered_by(person)
        yield host
        if at_rest:
            for agent in host.agents.roots():
                await quiet(host, agent)
        await host.suspend()


def decisions(events: Sequence[Event]) -> list[str]:
    """What the log says about approvals, in order: `asked RULE`, then the verb and who decided."""
    said: list[str] = []
    for event in events:
        if isinstance(event.data, ApprovalAsked):
            said.append(f"asked {event.data.rule}")
        elif isinstance(event.data, ApprovalDecided):
            said.append(f"{event.data.verb} by {event.data.by}" + (" always" if event.data.grants else ""))
    return said


def by_label(host: Host, label: str) -> SessionId:
    """The live agent of that label."""
    return next(agent.id for agent in host.agents.list() if agent.label == label)
