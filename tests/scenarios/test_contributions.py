"""What a deployment adds to children: in which order, taken back by whom, and revoked at once. Part of C25."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.errors import (
    ActivationSetupReleaseFailed,
    ActivationSetupRevoked,
)
from retinue.session.events import Descriptor
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    continuations,
    left_nothing,
    listener,
    quiet,
    settled,
    start,
    stock,
)


async def test_contributions_are_installed_in_order_and_a_failing_one_takes_the_earlier_back(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("first"), text("second"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        trace: list[str] = []

        def contribution(name: str, fails: bool = False):
            async def setup(child: Agent, made: Descriptor) -> Callable[[], None]:
                if fails:
                    raise ValueError(f"{name} has no room")
                trace.append(f"+{name}")
                return lambda: trace.append(f"-{name}")

            return setup

        agent = await app.agent(label="R")
        continuations(app).contribute(contribution("one"))
        continuations(app).contribute(contribution("two"))
        child = await start(app, agent)
        await settled(app, child)
        assert trace == ["+one", "+two", "-two", "-one"]
        trace.clear()
        await continuations(app).send(agent, child, "again")
        await quiet(app, agent)
        assert trace == ["+one", "+two", "-two", "-one"]
        trace.clear()
        undo = continuations(app).contribute(contribution("three", fails=True))
        with pytest.raises(ValueError, match="three has no room"):
            await start(app, agent)
        assert trace == ["+one", "+two", "-two", "-one"]
        undo()


async def test_c25_a_contribution_that_is_removed_while_a_child_is_built_fails_that_build(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        trace: list[str] = []

        async def early(child: Agent, made: Descriptor) -> Callable[[], None]:
            trace.append("+early")
            return lambda: trace.append("-early")

        async def other(child: Agent, made: Descriptor) -> Callable[[], None]:
            await gate.wait()
            trace.append("+other")
            return lambda: trace.append("-other")

        undo = continuations(app).contribute(early)
        continuations(app).contribute(other)

        async def refused() -> None:
            with pytest.raises(ActivationSetupRevoked):
                await start(app, agent)

        async with anyio.create_task_group() as group:
            group.start_soon(refused)
            await gate.wait_reached()
            undo()
            assert trace == ["+early", "-early"]
            gate.open()
        assert trace == ["+early", "-early", "+other", "-other"]
        await left_nothing(app, agent, lifecycle)


async def test_removing_a_contribution_revokes_it_at_once_and_tries_every_child(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("A", hold(gate, text("a")))
    model.script("B", hold(gate, text("b")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        revoked: list[str] = []

        async def setup(child: Agent, made: Descriptor) -> Callable[[], None]:
            def undo() -> None:
                revoked.append(child.label)
                raise ValueError(f"{child.label} keeps it")

            return undo

        undo = continuations(app).contribute(setup)
        first, second = await start(app, agent, "A"), await start(app, agent, "B")
        with pytest.raises(ActivationSetupReleaseFailed, match=r"A keeps it.*B keeps it"):
            undo()
        assert revoked == ["A", "B"]
        gate.open()
        await settled(app, first)
        await settled(app, second)
        assert revoked == ["A", "B"]
