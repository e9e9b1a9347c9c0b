"""What models read about workflows, and what they are shown of one that has ended."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.base.json import JSON, JSONObject, encode
from retinue.plugins.workflow.children import Tally
from retinue.plugins.workflow.process import Done
from retinue.plugins.workflow.run import Stopped
from retinue.tools.tool import ToolResult

__all__ = ["DESCRIPTION", "GUIDANCE", "ORDER", "result"]

ORDER = 115.0
"""Source: behaviour SP-07."""

_SHOWN_LINES = 40
_SHOWN_FAILURES = 20

DESCRIPTION = """\
Run a Python script that hands work to many agents and puts their answers together; the call waits for its end.

Available in the script:
- `await agent(prompt, *, label, schema=None, agent=None)`: a fresh agent works on the prompt alone, so say everything \
it needs. The value is its answer as text, or an object if `schema` (a JSON Schema of type object) is given, or None \
if it failed. `agent` names an agent file.
- `await parallel([agent(...), agent(...)])`: all at once; their values in order.
- `await pipeline(items, stage, ...)`: each item goes through all stages on its own, without waiting for the others; a \
stage is a function of the value before it, and an item that becomes None goes no further.
- `phase(name)` and `log(text)` say how far it is; `args` and `meta` are what you gave.
`return` a value that is JSON: it is the result. Example:

    phase("review")
    found = await parallel([agent(f"Review {f} for bugs.", label=f) for f in args["files"]])
    return await agent("Sum up:\\n" + "\\n".join(x for x in found if x), label="summary")

The script is a part of Python: no files, network or tools, no classes, no `with`, no private attributes, no \
`str.format`. It may import collections, functools, itertools, json, math, re, statistics, string and textwrap. An \
error ends the script, and its line is named."""

GUIDANCE = """\
Use `workflow` when a task falls into many similar parts, or into stages, that agents can do without talking to each \
other: the loop is in the script, and only what it returns comes back to you. For one or a few delegations call a \
delegation tool instead. Ask for structured results with `schema` where the script has to decide on them, and expect \
None from an agent that failed."""


def result(ended: Done | Stopped, lines: Sequence[str], tally: Tally, *, is_again: bool, limit: int) -> ToolResult:
    """What the model is shown: the value first, then what happened on the way."""
    notes = list(_notes(lines, tally, is_again))
    meta: JSONObject = {"agents": tally.started, "failed": len(tally.failures), "found_again": tally.found}
    if isinstance(ended, Stopped):
        return ToolResult.error("WORKFLOW_FAILED", "\n".join([f"the script failed: {ended.reason}", *notes]), meta=meta)
    text = _shown(ended.value)
    if len(text) > limit:
        text = f"{text[:limit]}\n[cut: {len(text)} characters in all, {limit} are shown; return less]"
    value: JSONObject = {"result": ended.value, "agents": tally.started, "failed": len(tally.failures)}
    return ToolResult.text("\n".join([text, "", *notes]), value=value, meta=meta)


def _shown(value: JSON) -> str:
    if value is None:
        return "(the script returned nothing)"
    return value if isinstance(value, str) else encode(value).decode()


def _notes(lines: Sequence[str], tally: Tally, is_again: bool) -> list[str]:
    agents = f"{tally.started} agent{'' if tally.started == 1 else 's'}"
    notes = [f"[workflow: {agents}, {len(tally.failures)} failed]"]
    if is_again:
        notes.append(
            "[the process that ran this script ended in the middle of it, so it ran again from its start: "
            f"{tally.found} of its agents were found again with what they had done, "
            f"{tally.started - tally.found} were started only now]"
        )
    notes += [f"[failed: {why[:300]}]" for why in tally.failures[:_SHOWN_FAILURES]]
    if len(lines) > _SHOWN_LINES:
        notes.append(f"[log: the last {_SHOWN_LINES} of {len(lines)} lines]")
    notes += lines[-_SHOWN_LINES:]
    return notes
