"""One run of a call that works through many children: its log says when it begins and how it ends, and its caller's
place is lent to them meanwhile. The scripts of `workflow` and the rounds of `ralph` run in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import anyio

from retinue.agent.agent import Agent
from retinue.errors import ToolFailure
from retinue.host.host import Host
from retinue.plugins.agents import AGENT_KINDS
from retinue.plugins.workflow.children import Children, Tally
from retinue.session.events import WorkflowAgentStart, WorkflowEnd, WorkflowStart
from retinue.subagent.tools.subagent import Backends, DelegationOptions
from retinue.tools.tool import ToolContext

__all__ = ["CallRun", "open_run"]


@dataclass(slots=True, kw_only=True)
class CallRun:
    """Whoever has opened it says how it ended."""

    children: Children
    n: int
    """1, or more if an earlier process ended in the middle of the call."""
    outcome: Literal["completed", "failed"] = "failed"
    detail: str | None = None
    """Why it ended so, for whoever reads the log."""


@asynccontextmanager
async def open_run(
    host: Host, ctx: ToolContext, backends: Backends, options: DelegationOptions, *, name: str, at_once: int, kind: str
) -> AsyncGenerator[CallRun]:
    """The call runs: `at_once` of its children may be at work. `kind` is what they are called if it is aborted.

    Its end is logged when the block ends, also by a cancellation, but not if the process leaves it to the next one.
    Raises: ToolFailure `NO_CALLER`.
    """
    agent = ctx.caller
    if not isinstance(agent, Agent):
        raise ToolFailure("NO_CALLER", f"{ctx.name} can only be called by an agent")
    # Since the call was asked for, only another run of it can have logged something under its index.
    since = [event.data for event in agent.session.events[ctx.key.seq :]]
    children = Children(
        agents=host.agents,
        parent=agent,
        key=ctx.key,
        providers=backends.providers,
        options=options,
        kinds=host.find(AGENT_KINDS),
        room=anyio.Semaphore(at_once),
        tally=Tally(),
        known=frozenset(
            data.id for data in since if isinstance(data, WorkflowAgentStart) and data.index == ctx.key.index
        ),
    )
    run = CallRun(
        children=children,
        n=1 + sum(isinstance(data, WorkflowStart) and data.index == ctx.key.index for data in since),
    )
    children.log(WorkflowStart(turn=ctx.turn, step=ctx.step, index=ctx.key.index, name=name, n=run.n))
    try:
        async with backends.admission.lent(agent.id) if backends.admission is not None else nullcontext():
            yield run
    except anyio.get_cancelled_exc_class():
        run.outcome, run.detail = "failed", "the call was cancelled"
        children.log(_end(ctx, run))
        raise
    finally:
        if children.tally.started:
            ctx.created.append(f"{children.tally.started} {kind}")
    children.log(_end(ctx, run))


def _end(ctx: ToolContext, run: CallRun) -> WorkflowEnd:
    return WorkflowEnd(turn=ctx.turn, step=ctx.step, index=ctx.key.index, outcome=run.outcome, detail=run.detail)
