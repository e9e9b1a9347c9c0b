"""Workflows: a Python script, written by a model or a user, that hands work to many one-shot children and puts together
what they answer: the tool `workflow`.

The script runs in a process of its own behind two walls. The outer one is the system's: a fresh interpreter without
files, network, keys or further processes, with bounds of memory and time, and in a sandbox where one is there. The
inner one is the language (`language.py`). It reaches nothing but its hooks, and what these make are ordinary children
of the agent that called the tool: depth, admission and permissions hold for them as for others.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from msgspec import Meta, Struct

from retinue.agent.environment import AgentOptions
from retinue.base.json import JSONObject
from retinue.errors import ConfigError
from retinue.host.host import Host
from retinue.plugins.sandbox import SANDBOX, Sandbox
from retinue.plugins.workflow.call import open_run
from retinue.plugins.workflow.process import Order, python_command
from retinue.plugins.workflow.run import Limits, ScriptRun, Stopped
from retinue.plugins.workflow.wording import DESCRIPTION, GUIDANCE, ORDER, result
from retinue.prompt.sections import Section
from retinue.subagent.tools.subagent import BACKENDS, Backends, DelegationOptions
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["OPTIONS", "WorkflowConfig", "WorkflowMeta", "plugin", "workflow_tool"]

_log = logging.getLogger("retinue")


class WorkflowConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a workflow may use. Durations in seconds."""

    provider: str = "spawn"
    """Which provider runs its agents."""
    max_depth: Annotated[int, Meta(ge=0)] = 3
    """Greatest depth of an agent of a workflow; a root has depth 0."""
    concurrency: int = 0
    """Agents of one run that work at once; 0 = the number of processors."""
    max_agents: int = 1_000
    """Agents of one run."""
    max_items: int = 4_096
    """Items of one call of `parallel` or `pipeline`."""
    start_s: float = 60.0
    """How long its process may take to start, also on a machine that is busy."""
    synchronous_s: float = 5.0
    """How long a script may run without calling a hook or waiting for one."""
    grace_s: float = 5.0
    """How long the end of its process is waited for once it was killed."""
    result_chars: int = 50_000
    """How much of what a script returns is shown."""
    memory_mb: int = 512
    """Memory of its process."""
    cpu_s: int = 60
    """Processor time of its process, in all."""


OPTIONS = WorkflowConfig


class WorkflowMeta(Struct, frozen=True, forbid_unknown_fields=True):
    """What a workflow is, for whoever watches."""

    name: Annotated[str, Meta(min_length=1, max_length=100, description="A short name.")]
    description: Annotated[str, Meta(max_length=1_000, description="What it does, in a sentence.")] = ""


@asynccontextmanager
async def plugin(host: Host, config: WorkflowConfig) -> AsyncGenerator[None]:
    """The tool and its guidance are there. Raises: MissingSeam without delegation, ConfigError for senseless limits."""
    lowest = {"concurrency": 0, "max_agents": 1, "max_items": 1, "result_chars": 1_000, "memory_mb": 64, "cpu_s": 1}
    for name, least in lowest.items():
        if getattr(config, name) < least:
            raise ConfigError(f"plugins.workflow: {name} must be {least} or more, not {getattr(config, name)}")
    for name in ("start_s", "synchronous_s", "grace_s"):
        if not 0 < getattr(config, name) < float("inf"):
            raise ConfigError(f"plugins.workflow: {name} must be positive and finite, not {getattr(config, name)}")
    backends = host.require(BACKENDS, needed_by="workflow")
    command = _Command(host.find(SANDBOX))
    with (
        host.tools.add(workflow_tool(host, config, backends, command)),
        host.prompt.add(Section(name="tool:workflow", order=ORDER, text=GUIDANCE, tool="workflow")),
    ):
        yield


def workflow_tool(
    host: Host, config: WorkflowConfig, backends: Backends, command: Callable[[], Awaitable[tuple[str, ...]]]
) -> Tool:
    """`workflow`, whose scripts run in processes of `command`. All its calls overlap."""
    limits = Limits(
        agents=config.max_agents,
        start_s=config.start_s,
        synchronous_s=config.synchronous_s,
        grace_s=config.grace_s,
    )
    options = DelegationOptions(provider=config.provider, options=AgentOptions(), max_depth=config.max_depth)
    at_once = config.concurrency or os.cpu_count() or 1

    @tool(description=DESCRIPTION, safe=True, effect="rows", pooled=False, output_limit=_bytes(config.result_chars))
    async def workflow(
        ctx: ToolContext,
        script: Annotated[str, "The Python text.", Meta(min_length=1, max_length=200_000)],
        meta: WorkflowMeta,
        args: Annotated[Any, "Any JSON; the script sees it as `args`."] = None,
    ) -> ToolResult:
        argv = await command()
        order = Order(
            script=script,
            args=args,
            meta=_object(meta),
            items=config.max_items,
            memory_bytes=config.memory_mb * 1024 * 1024,
            cpu_s=config.cpu_s,
        )
        async with open_run(
            host, ctx, backends, options, name=meta.name, at_once=at_once, kind="agents of the workflow"
        ) as run:
            children = run.children
            script_run = ScriptRun(children=children, limits=limits, mask=host.secrets.mask_json)
            ended = await script_run.perform(argv, order)
            if isinstance(ended, Stopped):
                run.detail = ended.reason
            else:
                run.outcome = "completed"
        return result(ended, script_run.lines, children.tally, is_again=run.n > 1, limit=config.result_chars)

    return workflow


def _object(meta: WorkflowMeta) -> JSONObject:
    return {"name": meta.name, "description": meta.description}


def _bytes(chars: int) -> int:
    """The most that so many characters of a result, and what is said about them, take."""
    return 4 * chars + 100_000


class _Command:
    """The command line of a script's process: enclosed where something can do that."""

    def __init__(self, sandbox: Sandbox | None) -> None:
        self._sandbox = sandbox
        self._plain: tuple[str, ...] = ()
        self._has_warned = False

    async def __call__(self) -> tuple[str, ...]:
        """Warns once where nothing encloses it. Raises: ToolFailure `NO_SANDBOX` if a sandbox is required."""
        if not self._plain:
            self._plain = await to_thread.run_sync(python_command)
        if self._sandbox is not None:
            enclosed = await self._sandbox.enclose(self._plain, readable=_interpreter())
            if enclosed is not None:
                return enclosed
        if not self._has_warned:
            self._has_warned = True
            why = "there is no sandbox" if self._sandbox is None else self._sandbox.why_not
            _log.warning(
                "scripts of workflows run WITHOUT A SANDBOX: %s. They are held by their language and by limits of "
                "their process alone.",
                why,
            )
        return self._plain


def _interpreter() -> list[Path]:
    """The folders that a Python needs to start."""
    program = Path(os.path.realpath(sys.executable))
    prefix = Path(sys.base_prefix).resolve()
    return [path for path in (prefix, program.parent) if not path.is_relative_to("/usr") and path != Path("/bin")]
