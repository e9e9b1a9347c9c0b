"""What the agents of a tree have used, from their logs alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.cli.text import brief
from retinue.cli.views.state import label
from retinue.compose.tree import usage_object
from retinue.model.content import Usage
from retinue.session.folds import total_usage
from retinue.session.store import SessionStore
from retinue.session.title import title

__all__ = ["AgentUsage", "agent_usages", "usage_report", "usage_table"]


class AgentUsage(Struct, frozen=True, kw_only=True):
    """One agent, and what it has used itself."""

    id: SessionId
    parent_id: SessionId | None
    label: str
    title: str
    depth: int
    usage: Usage


async def agent_usages(store: SessionStore, top: SessionId) -> AsyncGenerator[AgentUsage]:
    """`top` and its delegated descendants, parents before children. One log at a time. Raises: CorruptSession."""
    todo = [(top, 0)]
    while todo:
        id, depth = todo.pop()
        stored = await store.read(id)
        yield AgentUsage(
            id=id,
            parent_id=stored.header.parent_session,
            label=label(stored),
            title=title(stored),
            depth=depth,
            usage=total_usage(stored.events, stored.header.seed_length or 0),
        )
        children = [child.header for child in await store.children(id)]
        todo.extend((child.id, depth + 1) for child in reversed(children) if child.origin == "subagent")


def _total(agents: Sequence[AgentUsage]) -> Usage:
    total = Usage()
    for agent in agents:
        total = total + agent.usage
    return total


def usage_report(agents: Sequence[AgentUsage]) -> JSONObject:
    """One object: the whole, and each agent, the one that was asked for first."""
    return {
        "session_id": agents[0].id,
        "usage": usage_object(_total(agents)),
        "agents": [
            {"id": a.id, "parent_id": a.parent_id, "label": a.label or None, "usage": usage_object(a.usage)}
            for a in agents
        ],
    }


def usage_table(agents: Sequence[AgentUsage]) -> list[str]:
    """A line for each agent, and one for all of them."""
    rows = [("requests", "input", "cached", "output", "cost", "agent")]
    for agent in agents:
        name = brief(agent.label) or brief(agent.title, 50) or "(nothing said)"
        rows.append((*_numbers(agent.usage), f"{'  ' * agent.depth}{name}  {agent.id}"))
    rows.append((*_numbers(_total(agents)), f"together, {len(agents)} agent{'' if len(agents) == 1 else 's'}"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join([*(row[i].rjust(widths[i]) for i in range(5)), row[5]]) for row in rows]


def _numbers(usage: Usage) -> tuple[str, str, str, str, str]:
    cost = "-" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return (
        str(usage.requests),
        str(usage.input_tokens),
        str(usage.cached_tokens),
        str(usage.output_tokens),
        cost,
    )
