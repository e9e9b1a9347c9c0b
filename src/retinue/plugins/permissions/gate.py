"""The layer around every call: nothing runs against the rules, on whatever path the call came."""

from __future__ import annotations

from retinue.base.chain import Next
from retinue.plugins.permissions.rules import Acts, Rules, Verdict, acts_on
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import ToolResult

__all__ = ["Gate"]


class Gate:
    """One per host; a `tool_call` layer."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    async def __call__(self, request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        """The result of the call, or a denial in its place."""
        caller = request.context.caller
        acts = acts_on(request.tool.name, request.arguments, None if caller is None else caller.cwd)
        verdict = self._rules.judge(acts, is_outside=request.tool.effect == "outside")
        match verdict.verb:
            case "allow":
                return await inner(request)
            case "ask" | "deny":
                return _denied(acts, verdict)


def _denied(acts: Acts, verdict: Verdict) -> ToolResult:
    which = "no rule allows it" if verdict.rule == "otherwise" else f"the rule {verdict.rule!r} denies it"
    said = f"this call of {acts.tool} is not allowed: {which}. Do not work around it"
    return ToolResult.error("PERMISSION_DENIED", said)
