"""One line about a session of a tree."""

from __future__ import annotations

from retinue.cli.text import brief, duration, tokens
from retinue.cli.views.reading import Node
from retinue.cli.views.state import label, state
from retinue.session.folds import total_usage
from retinue.session.title import title

__all__ = ["tree_line"]


def tree_line(node: Node) -> str:
    """Branches, what it is called, how it stands, what it used, how long it took, and its id."""
    header = node.summary.header
    used = total_usage(node.stored.events, header.seed_length or 0)
    name = brief(label(node.stored)) or brief(title(node.stored), 50) or "(nothing said)"
    facts = (
        state(node.summary, node.stored, is_owed=node.is_owed),
        f"{used.requests} request{'' if used.requests == 1 else 's'}",
        tokens(used.input_tokens + used.output_tokens),
        duration((node.summary.last_event_at - header.created_at) / 1000),
    )
    return f"{_branches(node.is_last)}{name}  {'  '.join(facts)}  {header.id}"


def _branches(is_last: tuple[bool, ...]) -> str:
    if not is_last:
        return ""
    above = "".join("   " if last else "│  " for last in is_last[:-1])
    return above + ("└─ " if is_last[-1] else "├─ ")
