"""The names and places of prompt sections and of runtime context, which deployments replace or put theirs between.

Source: behaviour SP-07 to SP-09, TS-17, TT-01, CP-01, DR-08, SS-42, SS-44.
"""

from pathlib import Path

import pytest

from retinue.agent.agent import Agent
from retinue.errors import DuplicateName
from retinue.host.context import Contribution
from retinue.model.content import Text
from retinue.subagent.provider import PROVIDERS, RunRequest
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import CONTINUABLE, listener, live, quiet, start, stock

ALL = (*CONTINUABLE, "plugins.workflow={}", "plugins.ralph={}", "plugins.web={}")

SHARED = {
    "deployment:persona": 0,
    "tool:read": 100,
    "tool:write": 101,
    "tool:edit": 102,
    "tool:glob": 103,
    "tool:grep": 104,
    "tool:bash": 105,
    "tool:tasks": 106,
    "tool:web_fetch": 110,
    "tool:workflow": 115,
    "tool:ralph": 116,
    "tool:subagent": 116.5,
}


def places(agent: Agent) -> dict[str, float]:
    found = [(section.name, section.order) for section in agent.prompt.sections]
    assert len(dict(found)) == len(found)
    return dict(found)


async def test_every_section_has_its_name_and_its_place(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", hold(gate, text("c")))
    model.script("S", hold(gate, calls(call("structured_output", n=1))))
    async with stock(model, tmp_path, *ALL) as app:
        agent = await app.agent(label="R")
        assert places(agent) == SHARED
        child = live(app, await start(app, agent, persona="You are small."))
        assert places(child) == SHARED | {"tool:report": 117}
        assert next(one.text for one in child.prompt.sections if one.order == 0) == "You are small."
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        request = RunRequest(parent=agent, prompt=(Text("P"),), label="S", output_schema=schema)
        run = await app.host.require(PROVIDERS, needed_by="a test").start("spawn", request)
        assert run.agent is not None
        assert places(run.agent) == SHARED | {"tool:structured_output": 190}
        gate.open()
        await run.result()
        await run.dispose()
        await quiet(app, agent)


async def test_every_part_of_the_runtime_context_has_its_name_and_its_place(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", hold(gate, text("c")))
    async with stock(model, tmp_path, *CONTINUABLE, "permission=read-only") as app:
        agent = await app.agent(label="R")
        for order in (109.9, 110.1, 119.9, 120.1):
            app.host.context.add(Contribution(name=f"x{order}", order=order, text=f"<{order}>"))
        child = live(app, await start(app, agent))
        with pytest.raises(DuplicateName):
            app.host.context.add(Contribution(name="sandbox:policy", order=1, text="mine"))
        with pytest.raises(DuplicateName):
            app.host.context.add_for(child, Contribution(name="subagent:delegation", order=1, text="mine"))
        told = app.host.context.text(child)
        parts = told.split("\n\n")[1:]
        assert [parts[at] for at in (0, 2, 3, 5)] == ["<109.9>", "<110.1>", "<119.9>", "<120.1>"]
        assert "read" in parts[1]
        assert parts[4].startswith("You work for another agent")
        gate.open()
        await quiet(app, agent)
