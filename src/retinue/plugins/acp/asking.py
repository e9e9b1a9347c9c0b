"""Who answers when an external program asks whether it may make a call."""

from __future__ import annotations

from retinue.agent.agent import Agent
from retinue.base.ids import derived_id
from retinue.base.json import JSON, JSONObject
from retinue.host.approvals import APPROVALS, Answer, Question, path_of
from retinue.host.host import Host
from retinue.session.events import ExternalPermission
from retinue.subagent.providers.acp.external import Approve, reject, title_of
from retinue.subagent.standing import CHILD_APPROVALS

__all__ = ["allow", "by_policy"]


async def allow(_agent: Agent, _call: JSONObject) -> Answer:
    """Everything that is asked for is allowed, once each time."""
    return Answer(verb="allow", by="policy")


def by_policy(host: Host) -> Approve:
    """Questions of children go to the user of their tree, if that is the policy; else they are rejected."""

    async def approve(agent: Agent, call: JSONObject) -> Answer:
        approvals = host.find(APPROVALS)
        if approvals is None or host.find(CHILD_APPROVALS) == "reject":
            return await reject(agent, call)
        if any(type(event.data) is ExternalPermission and event.data.always for event in agent.session.events):
            return Answer(verb="allow", by="user")
        question = _question(host, agent, call)
        return await approvals.ask(question, lambda _: None)

    return approve


def _question(host: Host, agent: Agent, call: JSONObject) -> Question:
    open_ones = len(host.require(APPROVALS, needed_by="acp").open(agent.session.root))
    arguments = call.get("rawInput")
    return Question(
        id=derived_id("approval", agent.id, agent.session.next_seq, str(call.get("toolCallId")), open_ones),
        root=agent.session.root,
        agent=agent.id,
        label=agent.label,
        path=path_of(host.agents, agent),
        tool=_text(call.get("kind")) or "other",
        arguments=arguments if isinstance(arguments, dict) else {},
        about=title_of(call),
        rule=f"{agent.options.provider}:{agent.options.model}",
    )


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) and value else None
