"""The permission that a root was started with is its own: no resume widens it, or its children's, by saying nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import retinue
from retinue.compose.app import App
from retinue.testing.clock import FakeClock
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text

WRITE = calls(call("write", path="made.txt", content="x"))


@asynccontextmanager
async def opened(model: ScriptedModel, folder: Path, permission: str | None = None) -> AsyncGenerator[App]:
    async with retinue.open(
        "scripted:model-1",
        client=model,
        cwd=folder,
        home=folder / "home",
        permission=permission,
        clock=FakeClock(),
        environ={},
    ) as app:
        yield app


def refused(model: ScriptedModel, who: str) -> bool:
    return "PERMISSION_DENIED" in str(model.requests(who)[-1].messages[-1]) or "not allowed" in str(
        model.requests(who)[-1].messages[-1]
    )


async def test_a_resume_that_names_no_permission_keeps_that_of_the_root_and_of_its_children(tmp_path: Path) -> None:
    first = ScriptedModel()
    first.script("root", calls(call("subagent", description="kid", prompt="P")), text("started"), text("noted"))
    first.script("kid", text("ready"))
    async with opened(first, tmp_path, "read-only") as app:
        run = await app.run("go", agent=await app.agent(id="root", label="root"))
        await run.result()
        (kid,) = [line.id for line in run.tree.agents]
    second = ScriptedModel()
    second.script(
        "root",
        WRITE,
        calls(call("send_message", subagent_id=kid, message="write")),
        text("sent"),
        text("noted"),
    )
    second.script("kid", WRITE, text("could not"))
    async with opened(second, tmp_path) as app:
        await (await app.resume("root", "go on")).result()
    assert refused(second, "kid")
    assert not (tmp_path / "made.txt").exists()


async def test_a_wider_permission_for_a_resumed_root_does_not_reach_children_that_had_less(tmp_path: Path) -> None:
    first = ScriptedModel()
    first.script("root", calls(call("subagent", description="kid", prompt="P")), text("started"), text("noted"))
    first.script("kid", text("ready"))
    async with opened(first, tmp_path, "read-only") as app:
        run = await app.run("go", agent=await app.agent(id="root", label="root"))
        await run.result()
        (kid,) = [line.id for line in run.tree.agents]
    second = ScriptedModel()
    second.script("root", calls(call("send_message", subagent_id=kid, message="w")), text("sent"), WRITE, text("did"))
    second.script("kid", WRITE, text("could not"))
    async with opened(second, tmp_path, "full-access") as app:
        await (await app.resume("root", "go on")).result()
    assert refused(second, "kid")
    assert (tmp_path / "made.txt").exists(), "the root itself was given more on purpose"
