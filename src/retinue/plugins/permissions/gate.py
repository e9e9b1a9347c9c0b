"""The layer around every call: nothing runs against the rules, on whatever path the call came.

A call that needs somebody's word is held: its agent's log has the question, then the decision, and only then does the
call start. After the end of a process a held call is made again under the same key, so its question is the same, and a
decision that was logged holds.
"""

from __future__ import annotations

from retinue.agent.agent import Agent
from retinue.base.chain import Next
from retinue.base.ids import derived_id
from retinue.host.approvals import Answer, Approvals, Question, path_of
from retinue.host.host import Host
from retinue.plugins.permissions.presets import Permissions
from retinue.plugins.permissions.rules import Acts, Rules, acts_on
from retinue.session.events import ApprovalAsked, ApprovalDecided
from retinue.subagent.standing import CHILD_APPROVALS
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import ToolContext, ToolResult

__all__ = ["Gate"]


class Gate:
    """One per host; a `tool_call` layer."""

    def __init__(self, host: Host, permissions: Permissions, rules: Rules, approvals: Approvals) -> None:
        self._host = host
        self._permissions = permissions
        self._rules = rules
        self._approvals = approvals

    async def __call__(self, request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        """The result of the call, or a denial in its place."""
        context = request.context
        caller = context.caller
        acts = acts_on(request.tool.name, request.arguments, None if caller is None else caller.cwd)
        standing = None if caller is None else self._permissions.standing(caller.id)
        granted = frozenset[str]() if standing is None else standing.granted
        verdict = self._rules.judge(acts, is_outside=request.tool.effect == "outside", granted=granted)
        if verdict.verb == "deny":
            which = f"the rule {verdict.rule!r} denies it" if verdict.rule != "otherwise" else "no rule allows it"
            return ToolResult.error("PERMISSION_DENIED", f"this call of {acts.tool} is not allowed: {which}{_STOP}")
        if not isinstance(caller, Agent):
            if verdict.verb == "ask":
                said = f"this call of {acts.tool} needs an approval, and only an agent can ask for one"
                return ToolResult.error("PERMISSION_DENIED", said)
            return await inner(request)
        asked, decided = _logged(caller, context)
        if decided is None and verdict.verb == "ask":
            decided = await self._decision(caller, request, acts, verdict.rule, asked)
        elif decided is None and asked is not None:  # the rules have changed since it was asked
            decided = _decide(caller, asked, Answer(verb="allow", by="policy"))
        if decided is not None and decided.verb == "reject":
            return _rejected(acts, decided)
        return await inner(request)

    async def _decision(
        self, agent: Agent, request: ToolRequest, acts: Acts, rule: str, asked: ApprovalAsked | None
    ) -> ApprovalDecided:
        """The decision about the call, logged. `asked` is its question, if another process logged that."""
        if asked is None:
            asked = _ask(agent, request.context, rule)
        is_child = agent.session.header.origin == "subagent"
        if is_child and self._host.find(CHILD_APPROVALS) == "reject":
            return _decide(agent, asked, Answer(verb="reject", by="policy"))
        if self._approvals.has_answerer(agent.session.root):  # what somebody has seen is asked again after a crash
            await agent.environment.sessions.writer.committed()
        question = Question(
            id=asked.id,
            root=agent.session.root,
            agent=agent.id,
            label=agent.label,
            path=path_of(self._host.agents, agent),
            tool=request.tool.name,
            arguments=request.arguments,
            about=acts.on,
            rule=asked.rule,
        )
        answer = await self._approvals.ask(question, lambda answer: _decide(agent, asked, answer))
        return _decided(asked, answer)


_STOP = ". Do not work around it"


def _logged(agent: Agent, context: ToolContext) -> tuple[ApprovalAsked | None, ApprovalDecided | None]:
    """The question about the call and its decision, as far as the log has them."""
    turn = agent.session.turns.open
    step = None if turn is None else turn.step
    if step is None or context.key.index not in step.held:
        return None, None
    id = _question_id(context)
    asked: ApprovalAsked | None = None
    for event in agent.session.events[context.key.seq :]:
        if isinstance(event.data, ApprovalAsked) and event.data.id == id:
            asked = event.data
        elif isinstance(event.data, ApprovalDecided) and event.data.id == id:
            return asked, event.data
    return asked, None


def _question_id(context: ToolContext) -> str:
    return derived_id("approval", *context.key.parts)


def _ask(agent: Agent, context: ToolContext, rule: str) -> ApprovalAsked:
    asked = ApprovalAsked(
        id=_question_id(context),
        turn=context.turn,
        step=context.step,
        index=context.key.index,
        call_id=context.call_id,
        name=context.name,
        rule=rule,
    )
    tx = agent.transaction()
    tx.append(agent.session, asked)
    tx.submit()
    return asked


def _decide(agent: Agent, asked: ApprovalAsked, answer: Answer) -> ApprovalDecided:
    decided = _decided(asked, answer)
    tx = agent.transaction()
    tx.append(agent.session, decided)
    tx.submit()
    return decided


def _decided(asked: ApprovalAsked, answer: Answer) -> ApprovalDecided:
    return ApprovalDecided(
        id=asked.id,
        turn=asked.turn,
        step=asked.step,
        index=asked.index,
        verb=answer.verb,
        by=answer.by,
        grants=asked.rule if answer.verb == "allow" and answer.always else None,
        words=answer.words if answer.verb == "reject" else None,
    )


def _rejected(acts: Acts, decided: ApprovalDecided) -> ToolResult:
    call = f"this call of {acts.tool}"
    if decided.by == "policy":
        said = f"{call} needs an approval, and nobody can be asked for it. Do not retry it and do not work around it"
    elif decided.words:
        said = f"the user rejected {call}: {decided.words}"
    else:
        said = f"the user rejected {call}. Do not retry it and do not work around it"
    return ToolResult.error("APPROVAL_REJECTED", said)
