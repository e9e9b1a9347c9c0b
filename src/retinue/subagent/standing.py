"""What every in-process child is told about its standing: its permissions are fixed, and who answers for it.

It is runtime context of the child alone, so its parent and its siblings read nothing of it. Source: behaviour SS-44.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from retinue.agent.agent import Agent
from retinue.host.approvals import APPROVALS
from retinue.host.context import Contribution
from retinue.host.host import Host, Seam

__all__ = [
    "CHILD_APPROVALS",
    "CONTEXT_NAME",
    "CONTEXT_ORDER",
    "OWN_APPROVALS",
    "ChildApprovals",
    "OwnApprovals",
    "standing_setup",
]

ChildApprovals: TypeAlias = Literal["reject", "route"]
"""What becomes of a child's call that needs an approval: it is rejected, or the question goes to the user."""

CHILD_APPROVALS: Seam[ChildApprovals] = Seam("policy.child_approvals")
"""What becomes of questions of children; `route` if nobody provides it."""

OwnApprovals: TypeAlias = Callable[[Agent], Literal["reject", "allow"] | None]
"""What becomes of the questions of that child whatever holds for others; None if nothing else does."""

OWN_APPROVALS: Seam[OwnApprovals] = Seam("policy.own_approvals")
"""Who makes children of another kind says here how their questions are answered."""

CONTEXT_NAME = "subagent:delegation"
CONTEXT_ORDER = 120.0
"""Source: behaviour SP-08."""

_SCOPE = (
    "You work for another agent. What you may do was fixed when you were started, and nothing you say or do here can "
    "widen it."
)
_APPROVALS: dict[ChildApprovals | Literal["allow"], str] = {
    "reject": (
        "Nobody can be asked on your behalf: a call that would need an approval is rejected. Do not retry it and do "
        "not work around it. Do what is possible without it, and state the limitation in your reply."
    ),
    "route": (
        "A call that needs an approval is put to the user, and waits for the answer. If the answer is no, do not retry "
        "it and do not work around it; state the limitation in your reply."
    ),
    "allow": "A call that needs an approval is allowed without anybody being asked.",
}


def standing_setup(host: Host, approvals: ChildApprovals) -> Callable[[Agent], Awaitable[None]]:
    """Composes an agent: a delegated one is told its standing from its first step on, also after it was resumed."""

    def text(agent: Agent) -> str:
        own = host.find(OWN_APPROVALS)
        fixed = None if own is None else own(agent)
        if fixed is not None:
            return f"{_SCOPE} {_APPROVALS[fixed]}"
        asked = host.find(APPROVALS)
        is_heard = asked is not None and (asked.has_answerer(agent.session.root) or asked.policy == "allow")
        return f"{_SCOPE} {_APPROVALS[approvals if is_heard else 'reject']}"

    told = Contribution(name=CONTEXT_NAME, order=CONTEXT_ORDER, text=text)

    async def setup(agent: Agent) -> None:
        if agent.session.header.origin == "subagent":
            agent.scope.enter_context(host.context.add_for(agent, told))

    return setup
