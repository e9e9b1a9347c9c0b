"""The delegation tool: one instance binds one provider to one tool name and one default of scheduling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.base.ids import derived_id
from retinue.errors import ToolFailure
from retinue.host.host import Seam
from retinue.model.content import Text
from retinue.session.events import ToolFilter
from retinue.subagent.admission import Admission
from retinue.subagent.background import run_job
from retinue.subagent.continuation import Continuations
from retinue.subagent.provider import Provider, Providers, RunRequest
from retinue.subagent.tools.foreground import finish_run, foreground_result
from retinue.subagent.tools.wording import Background, continuable_receipt, tool_spec
from retinue.tasks.job import start_job
from retinue.tasks.runtime import Tasks
from retinue.tasks.wording import receipt
from retinue.tools.function import tool
from retinue.tools.registry import ToolRegistry
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["BACKENDS", "Backends", "DelegationOptions", "delegation_tool"]


class DelegationOptions(Struct, frozen=True, kw_only=True):
    """How one delegation tool is bound."""

    provider: str = "spawn"
    tool_name: str = "subagent"
    background: Background = "one-shot"
    options: AgentOptions
    max_depth: int | None = 3
    """None leaves the depth to the provider."""
    tool_filter: ToolFilter | None = None
    persona: str | None = None
    purpose: str | None = None
    """What its children are good for; comes first in the description."""


class Backends(Struct, frozen=True, kw_only=True):
    """What runs the children of a delegation tool."""

    providers: Providers
    continuations: Continuations | None = None
    admission: Admission | None = None
    tasks: Tasks | None = None
    controls: tuple[Tool, ...] = ()
    """What a model with continuable children needs besides: to message, interrupt and list them."""

    def missing_controls(self, tools: ToolRegistry, offered: Iterable[DelegationOptions]) -> list[Tool]:
        """The controls that `tools` has not, if one of the delegation tools that are `offered` there is continuable."""
        if all(options.background != "continuable" for options in offered):
            return []
        return [control for control in self.controls if tools.get(control.name) is None]


BACKENDS: Seam[Backends] = Seam("subagent.backends")
"""Where plugins that add delegation tools find what runs the children."""


def delegation_tool(backends: Backends, provider: Provider, options: DelegationOptions) -> Tool:
    """The tool of one instance. All its calls overlap."""

    async def delegate(
        ctx: ToolContext, description: str, prompt: str, run_in_background: bool | None = None
    ) -> ToolResult:
        request = _request(ctx, description, prompt, options, backends)
        if run_in_background and options.background == "disabled":
            raise ToolFailure("BACKGROUND_DISABLED", f"{options.tool_name} has no background here; leave the flag out")
        if options.background == "continuable" and run_in_background is not False:
            return await _continuable(ctx, request, options, backends)
        if options.background == "one-shot" and run_in_background:
            return await _task(ctx, request, options, backends)
        run_id = derived_id("run", *ctx.key.parts)
        run = await backends.providers.start(options.provider, request)
        ctx.created.append(f"agent {run.id}")
        ended = await finish_run(
            run, run_id=run_id, provider=options.provider, parent=request.parent, admission=backends.admission
        )
        return foreground_result(run_id, run.id, ended)

    spec = tool_spec(options.tool_name, provider.capabilities, options.background, options.purpose)
    made = tool(name=spec.name, description=spec.description, safe=True, effect="rows", pooled=False)(delegate)
    return replace(made, spec=spec)


async def _continuable(
    ctx: ToolContext, request: RunRequest, options: DelegationOptions, backends: Backends
) -> ToolResult:
    """A child that works in the background from now on; the call is over when its mailbox holds the prompt."""
    if backends.continuations is None:
        raise ToolFailure("CONTINUATION_UNAVAILABLE", "children cannot run in the background here")
    ahead = backends.admission.ahead_of(request.parent.id) if backends.admission is not None else 0
    accepted = await backends.continuations.start(options.provider, request)
    ctx.created.append(f"agent {accepted.child_id}")
    return ToolResult.text(
        continuable_receipt(accepted.child_id, ahead),
        value={"kind": "continuable", "subagent_id": accepted.child_id},
        meta={"subagent_id": accepted.child_id},
    )


async def _task(ctx: ToolContext, request: RunRequest, options: DelegationOptions, backends: Backends) -> ToolResult:
    """A one-shot run as a task of the parent, under a cancel scope that the call does not own."""
    run_id = derived_id("run", *ctx.key.parts)
    job = run_job(request, run_id=run_id, provider=options.provider, providers=backends.providers)
    started = await start_job(backends.tasks, job, kind="subagent", label=request.label, owner=request.parent)
    ctx.created.append(f"task {started.id}")
    return ToolResult.text(
        receipt(started),
        value={"kind": "background", "task_id": started.id},
        meta={"task_id": started.id},
    )


def _request(
    ctx: ToolContext, description: str, prompt: str, options: DelegationOptions, backends: Backends
) -> RunRequest:
    parent = ctx.caller
    if not isinstance(parent, Agent):
        raise ToolFailure("NO_CALLER", f"{options.tool_name} can only be called by an agent")
    if not description.strip():
        raise ToolFailure("INVALID_ARGS", "description: must name the task in a few words; it is empty")
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
    return backends.providers.inheriting(request)
