"""The delegation tool: one instance binds one provider to one tool name."""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.base.bus import Bus
from retinue.base.ids import SessionId, derived_id
from retinue.base.json import JSONObject
from retinue.errors import RetinueError, ToolFailure, error_record
from retinue.model.content import Text
from retinue.session.events import ToolFilter
from retinue.subagent.outcome import Ending, Outcome
from retinue.subagent.provider import Provider, Providers, Run, RunRequest
from retinue.subagent.tools.wording import headline, tool_spec
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["DelegationOptions", "SubagentEnded", "SubagentStarted", "delegation_tool"]


class DelegationOptions(Struct, frozen=True, kw_only=True):
    """How one delegation tool is bound."""

    provider: str = "spawn"
    tool_name: str = "subagent"
    options: AgentOptions
    max_depth: int | None = 3
    """None leaves the depth to the provider."""
    tool_filter: ToolFilter | None = None
    persona: str | None = None


class SubagentStarted(Struct, frozen=True, kw_only=True):
    """A child was accepted. Published on the delegating parent's bus, before its end."""

    run_id: str
    provider: str
    id: SessionId
    parent: Agent
    local: bool


class SubagentEnded(Struct, frozen=True, kw_only=True):
    """How that child ended; pairs with its start by `run_id`."""

    run_id: str
    provider: str
    id: SessionId
    parent: Agent
    local: bool
    outcome: Ending
    last_message: str


def delegation_tool(providers: Providers, provider: Provider, options: DelegationOptions) -> Tool:
    """The tool of one instance. Its calls overlap; each waits for its child and disposes it."""

    async def delegate(
        ctx: ToolContext,
        description: str,
        prompt: str,
    ) -> ToolResult:
        parent = ctx.caller
        if not isinstance(parent, Agent):
            raise ToolFailure("NO_CALLER", f"{options.tool_name} can only be called by an agent")
        if not prompt.strip():
            raise ToolFailure("INVALID_ARGS", "prompt: must say what to do; it is empty")
        request = RunRequest(
            parent=parent,
            prompt=(Text(prompt),),
            label=description,
            key=ctx.key,
            options=options.options,
            max_depth=options.max_depth,
            tool_filter=options.tool_filter,
            persona=options.persona,
        )
        run_id = derived_id("run", *ctx.key.parts)
        run = await providers.start(options.provider, request)
        ctx.created.append(f"subagent {run.id}")
        ended = await _Foreground(parent.bus, run_id, options.provider, run, parent).finish()
        return _result(run_id, run.id, *ended)

    spec = tool_spec(options.tool_name, provider.capabilities)
    made = tool(name=spec.name, description=spec.description, safe=True, effect="rows", pooled=False)(delegate)
    return replace(made, spec=spec)


class _Foreground(Struct, frozen=True):
    """One run, waited for, disposed, and announced in pairs."""

    bus: Bus
    run_id: str
    provider: str
    run: Run
    parent: Agent

    async def finish(self) -> tuple[Outcome, list[Exception]]:
        """How it ended, and what failed around it: the run first, then its disposal."""
        is_local = self.run.agent is not None
        self.bus.publish(
            SubagentStarted(
                run_id=self.run_id, provider=self.provider, id=self.run.id, parent=self.parent, local=is_local
            )
        )
        outcome = Outcome(ending="aborted")
        failures: list[Exception] = []
        try:
            outcome = await self.run.result()
        except Exception as error:
            outcome = Outcome(ending="error")
            failures.append(error)
        finally:
            try:
                await self.run.dispose()
            except Exception as error:
                failures.append(error)
            self.bus.publish(
                SubagentEnded(
                    run_id=self.run_id,
                    provider=self.provider,
                    id=self.run.id,
                    parent=self.parent,
                    local=is_local,
                    outcome="error" if failures else outcome.ending,
                    last_message=outcome.text,
                )
            )
        return outcome, failures


def _result(run_id: str, id: SessionId, outcome: Outcome, failures: list[Exception]) -> ToolResult:
    """The result the model sees. Source: behaviour TS-24, TS-27, TS-28."""
    meta: JSONObject = {"subagent_id": id, "run_id": run_id, "outcome": "error" if failures else outcome.ending}
    if outcome.ending == "completed" and not failures:
        value: JSONObject = {"kind": "foreground", "run_id": run_id, "output": outcome.text}
        content = outcome.output or (Text("The agent finished without a closing message."),)
        return ToolResult(content=content, value=value, meta=meta)
    lines: list[str] = []
    if outcome.ending != "completed":
        lines.append(headline(outcome.ending))
        if outcome.diagnostic:
            lines.append(outcome.diagnostic)
    lines.extend(_failure_line(error) for error in failures)
    if outcome.text:
        lines.append(f"What it had said so far:\n{outcome.text}")
    ending: str = "error" if failures else outcome.ending
    code = f"SUBAGENT_{ending.upper().replace('-', '_')}"
    return ToolResult.error(code, "\n".join(lines), meta=meta)


def _failure_line(error: Exception) -> str:
    code, message = error_record(error)
    return f"{code}: {message}" if isinstance(error, RetinueError) else message
