"""What models read about rounds, and what they are shown of rounds that have ended."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from retinue.base.json import JSONObject
from retinue.tools.tool import ToolResult

__all__ = ["DESCRIPTION", "GUIDANCE", "ORDER", "Ended", "prompt", "result"]

ORDER = 116.0
"""Source: behaviour SP-07."""

DESCRIPTION = """\
Let fresh agents work towards one objective, one after the other; the call waits until it is reached, or cannot be.

Each round is a new agent that sees the objective and what the round before handed on, and nothing of this \
conversation: say in `objective` all that it needs, and how to check that it is reached. It says whether the next \
round goes on, the objective is complete, or something blocks it. What a round does to files stays for the next."""

GUIDANCE = """\
Use `ralph` for an objective that is too long for one agent and whose parts cannot be told in advance, such as making \
every test of a project pass: each round begins with an empty mind and a short hand-off. When the parts are known, or \
can be worked on side by side, other delegations are better."""

_ROUND = """\
Work towards this objective:

{objective}

You are round {n} of at most {most}. Each round is a fresh agent: the next one finds the files as you leave them, and \
sees the objective and the text that you hand on, nothing else of what you did here. {before}

Look at how things stand, do the most useful piece of work that you can finish and check, and then deliver:
- `continue` if there is more to do: hand on what is done, what was learnt, and what comes next;
- `complete` if you have checked that the objective is reached: hand on the result;
- `blocked` if no agent can get further without a decision or a thing that is missing: hand on what it is."""

_FIRST = "Nobody has worked on it before you."
_LATER = "The round before you handed on:\n\n{hand_off}"


class Ended(Struct, frozen=True):
    """How the rounds ended."""

    outcome: Literal["complete", "blocked", "budget-limited", "round-failed"]
    rounds: int
    hand_off: str
    """The newest; empty if no round has handed on anything."""
    why: str | None = None
    """The round failed."""


def prompt(objective: str, n: int, most: int, hand_off: str) -> str:
    """What round `n` is asked; `hand_off` is from the round before."""
    before = _LATER.format(hand_off=hand_off) if n > 1 else _FIRST
    return _ROUND.format(objective=objective, n=n, most=most, before=before)


def result(ended: Ended, *, found: int | None) -> ToolResult:
    """What the model is shown: how it ended first, then the newest hand-off. `found` counts the rounds that an earlier
    process had begun, if one was lost in the middle of the call.
    """
    match ended.outcome:
        case "complete":
            headline = f"Complete in round {ended.rounds}:"
        case "blocked":
            headline = f"Blocked in round {ended.rounds}; nobody gets further without this:"
        case "budget-limited":
            headline = f"Budget-limited: after round {ended.rounds} there is more to do. It handed on:"
        case "round-failed":
            headline = f"Round {ended.rounds} failed: {ended.why}"
            headline += "\nThe round before it handed on:" if ended.hand_off else ""
    notes = ""
    if found is not None:
        notes = f"\n\n[a process ended in the middle of it; rounds found again with what they had done: {found}]"
    text = f"{headline}\n\n{ended.hand_off}".rstrip() + notes
    meta: JSONObject = {"outcome": ended.outcome, "rounds": ended.rounds}
    if ended.outcome == "round-failed":
        return ToolResult.error("RALPH_ROUND_FAILED", text, meta=meta)
    return ToolResult.text(text, value={**meta, "hand_off": ended.hand_off}, meta=meta)
