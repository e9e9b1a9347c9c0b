"""Hundreds of children of one parent: each notice is read once, in few steps, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.compose.app import App
from retinue.session.events import StepStart, UserMessage
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import CONTINUABLE, children, continuations, log, noop, quiet, start, stock

pytestmark = pytest.mark.exploration

CHILDREN = 500


def children_of_three_steps(model: ScriptedModel, gate: Gate) -> None:
    steps = [calls(call("noop")), calls(call("noop")), hold(gate, text("child is done"))]
    model.script(prompt("^task"), *steps, every=True)


async def start_all(app: App, agent: Agent) -> None:
    async with anyio.create_task_group() as group:
        for number in range(CHILDREN):
            group.start_soon(start, app, agent, f"child {number}", f"task {number}")


async def check_notices(app: App, agent: Agent) -> int:
    """Every notice was read once; the answer is in how many steps."""
    events = await log(app, agent.id)
    read = [event.data for event in events if isinstance(event.data, UserMessage)]
    senders = [message.source.sender_session_id for message in read if message.source.kind == "subagent-settled"]
    assert len(senders) == len(set(senders)) == CHILDREN
    assert app.host.agents.list() == (agent,)
    return sum(isinstance(event.data, StepStart) for event in events)


async def test_500_children_that_settle_into_a_busy_parent_cost_it_one_step_more(tmp_path: Path) -> None:
    model, gate, busy = ScriptedModel(), Gate(), Gate()
    model.script("R", hold(busy, text("thinking")), text("seen all"))
    children_of_three_steps(model, gate)
    gate.open()
    async with stock(model, tmp_path, *CONTINUABLE, tools=[noop]) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await busy.wait_reached()
        await start_all(app, agent)
        for child in await children(app, agent.id):
            await continuations(app).wait_settled(child)
        busy.open()
        await quiet(app, agent)
        assert await check_notices(app, agent) == 2
        assert len(model.requests()) == 3 * CHILDREN + 2


async def test_500_children_that_settle_into_an_idle_parent_cost_it_few_turns(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", *[text("noted")] * CHILDREN, every=True)
    children_of_three_steps(model, gate)
    async with stock(model, tmp_path, *CONTINUABLE, tools=[noop]) as app:
        agent = await app.agent(label="R")
        await start_all(app, agent)
        await gate.wait_reached(CHILDREN)
        gate.open()
        await quiet(app, agent)
        steps = await check_notices(app, agent)
        assert steps <= CHILDREN / 10
