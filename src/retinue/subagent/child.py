"""What every in-process child is made from: depth, header, options, persona, tool restriction, descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from retinue.agent.agent import Agent
from retinue.agent.registry import Creation, Setup
from retinue.base.ids import MessageId, SessionId, derived_id, new_session_id
from retinue.errors import DepthExceeded
from retinue.model.content import UserMessage
from retinue.prompt.sections import Section
from retinue.session.events import ActivationStart, Descriptor, Event, SessionHeader, ToolFilter
from retinue.session.folds import descriptor
from retinue.session.rows import Delivery
from retinue.session.transaction import Transaction
from retinue.subagent.provider import RunRequest

__all__ = [
    "PERSONA_ORDER",
    "PERSONA_SECTION",
    "child_depth",
    "child_id",
    "composition",
    "creation",
    "describe",
    "prompt_id",
]

PERSONA_SECTION = "deployment:persona"
PERSONA_ORDER = 0.0


def child_depth(request: RunRequest) -> int:
    """The depth the child will have. Raises: DepthExceeded with the attempted and the greatest depth."""
    depth = request.parent.depth + 1
    if request.max_depth is not None and depth > request.max_depth:
        raise DepthExceeded(
            f"a child here would have depth {depth}, and the maximum is {request.max_depth}; do the work yourself"
        )
    return depth


def child_id(request: RunRequest) -> SessionId:
    """The reserved id, or the one that the asking call gives its child for ever; a fresh one without either."""
    if request.child_id is not None:
        return request.child_id
    if request.key is None:
        return new_session_id()
    return SessionId(derived_id("agent", *request.key.parts))


def composition(descriptor: Descriptor) -> Setup:
    """What a child has of its own: its persona in the persona slot, and its tool restriction."""

    async def setup(agent: Agent) -> None:
        if descriptor.persona is not None:
            agent.prompt.add(Section(name=PERSONA_SECTION, order=PERSONA_ORDER, text=descriptor.persona))
        chosen = descriptor.tool_filter
        if chosen is not None:
            agent.tools.restrict(allow=chosen.allow, deny=chosen.deny)

    return setup


def describe(request: RunRequest, provider: str, mode: Literal["one-shot", "continuable"]) -> Descriptor:
    """What the child is made from, as its log keeps it.

    It joins its parent's own composition: without a persona of its own it has the parent's, and it never sees a tool
    that is hidden from the parent. Source: behaviour SS-41.
    """
    options = request.options.over(request.parent.options)
    header = request.parent.session.header
    above = descriptor(header, request.parent.session.events) if header.origin == "subagent" else None
    return Descriptor(
        mode=mode,
        provider=provider,
        label=request.label or None,
        agent_provider=options.provider,
        agent_model=options.model,
        persona=request.persona if request.persona is not None or above is None else above.persona,
        tool_filter=_both(above.tool_filter if above is not None else None, request.tool_filter),
        max_tokens=options.max_tokens,
    )


def _both(outer: ToolFilter | None, inner: ToolFilter | None) -> ToolFilter | None:
    """The filter that lets through what both let through."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    if outer.allow is None or inner.allow is None:
        allow = inner.allow if outer.allow is None else outer.allow
    else:
        allow = tuple(name for name in inner.allow if name in outer.allow)
    if outer.deny is None or inner.deny is None:
        deny = inner.deny if outer.deny is None else outer.deny
    else:
        deny = tuple(dict.fromkeys((*outer.deny, *inner.deny)))
    return ToolFilter(allow, deny)


def creation(
    request: RunRequest, made: Descriptor, *, setup: Setup, seed: Sequence[Event] = (), id: SessionId | None = None
) -> Creation:
    """The creation of a child whose first batch holds its descriptor, the start of its activation if it is
    continuable, the policies it inherits, and its prompt. `id` is the child's, if it was asked for before.

    Raises: DepthExceeded.
    """
    parent = request.parent
    clock = parent.environment.sessions.clock
    id = id or child_id(request)
    prompt = Delivery(
        session_id=id,
        message=UserMessage(prompt_id(id), request.prompt),
        target="next-turn",
        wake=True,
        accepted_at=clock.now_ms(),
    )

    def commit(tx: Transaction, agent: Agent) -> None:
        tx.append(agent.session, made)
        if made.mode == "continuable":
            tx.append(agent.session, ActivationStart(1))
        if request.policies:
            tx.append(agent.session, *request.policies)
        tx.insert(prompt)

    return Creation(
        header=SessionHeader(
            id=id,
            created_at=clock.now_ms(),
            cwd=str(request.cwd or parent.cwd),
            parent_session=parent.id,
            seed_length=len(seed) or None,
            origin="subagent",
            delegation_depth=child_depth(request),
        ),
        options=request.options.over(parent.options),
        label=request.label,
        root=parent.session.root,
        seed=seed,
        setup=setup,
        commit=commit,
    )


def prompt_id(child: SessionId) -> MessageId:
    """The id of a child's first message."""
    return MessageId(derived_id("prompt", child))
