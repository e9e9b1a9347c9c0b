"""`recovery.on_interrupt: settle`: a child that the end of a process caught in a turn ends there, told of once."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.base.clock import SystemClock
from retinue.base.ids import SessionId
from retinue.compose.config import Overrides, load_config
from retinue.compose.stores import open_store
from retinue.errors import ConfigError, RetinueError
from retinue.session.events import TurnEnd
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.scenarios.stock import (
    CONTINUABLE,
    chain,
    children,
    continuations,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    said_to,
    settled,
    start,
    stock,
)

ROOT = SessionId("root")
SETTLE = (*CONTINUABLE, "recovery.on_interrupt=settle")


async def test_a_child_in_a_turn_settles_as_interrupted_without_a_request_and_its_queue_waits(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("C", text("so far").hold_after(never))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        child = await start(app, agent)
        await never.wait_reached()
        await continuations(app).send(agent, child, "more")
    again = ScriptedModel(text("I see"), text("told again"))
    again.script("C", text("more done"), text("both done"))
    async with stock(again, tmp_path, *SETTLE) as app:
        run = await app.resume("root")
        await quiet(app, run.agent)
        assert (await endings(app, child), again.requests("C")) == (["interrupted"], ())
        (notice,) = await notices(app, run.agent.id)
        assert "was interrupted by the end of its process" in notice
        assert "1 message" in notice
        assert notice in said_to(again.requests("root")[0])

        await continuations(app).send(run.agent, child, "go on")
        await settled(app, child)
        assert said_to(again.requests("C")[0])[-1] == "more"
        assert await endings(app, child) == ["interrupted", "completed"]


async def test_a_foreground_call_gets_the_interrupted_result_and_the_root_goes_on(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P", run_in_background=False)))
    model.script("C", text("half of it").hold_after(never))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached()
    again = ScriptedModel()
    again.script("root", text("then without it"))
    async with stock(again, tmp_path, *SETTLE) as app:
        result = await (await app.resume("root")).result()
        assert (result.outcome, result.output) == ("completed", "then without it")
        (child,) = await children(app, ROOT)
        end = (await log(app, child))[-1].data
        assert isinstance(end, TurnEnd)
        assert end.reason == "interrupted"
        assert "interrupted by the end of its process" in str(again.requests("root")[0].messages[-1])
        assert [line.outcome for line in result.agents] == ["interrupted"]


async def test_interrupted_parents_are_not_woken_by_interrupted_children(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        ids = await chain(app, agent, "CGH", model, never)
    again = ScriptedModel(text("I see"))
    async with stock(again, tmp_path, *SETTLE) as app:
        run = await app.resume("root")
        await quiet(app, run.agent)
        assert [await endings(app, id) for id in ids] == [["interrupted"]] * 3
        assert [len(await notices(app, id)) for id in (ROOT, *ids)] == [1, 1, 1, 0]
    assert len(again.requests()) == 1


async def test_a_child_between_turns_is_told_of_its_interrupted_child_and_goes_on(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("C", calls(call("subagent", description="G", prompt="Q")), text("waiting"))
    model.script("G", text("never").hold_after(never))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        child = await start(app, agent)
        await never.wait_reached()
        await live(app, child).wait_idle()
    again = ScriptedModel(text("noted"))
    again.script("C", text("without G, then"))
    async with stock(again, tmp_path, *SETTLE) as app:
        run = await app.resume("root")
        await quiet(app, run.agent)
        (grandchild,) = await children(app, child)
        assert (await endings(app, child), await endings(app, grandchild)) == (["completed"], ["interrupted"])
        assert "interrupted by the end" in said_to(again.requests("C")[0])[-1]


async def test_a_recovery_that_dies_at_any_commit_tells_of_nobody_twice(tmp_path: Path) -> None:
    commits = await _recover_dying_at(tmp_path / "calm", None)
    for point in range(1, commits + 1):
        await _recover_dying_at(tmp_path / str(point), point)


async def _recover_dying_at(folder: Path, point: int | None) -> int:
    """How many batches a recovery of three nested children makes that dies before one of them, and is then repeated."""
    folder.mkdir()
    model, never = ScriptedModel(), Gate()
    async with stock(model, folder, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        ids = await chain(app, agent, "CGH", model, never)
        clock = FakeClock()
    for dies_at in (point, None):
        listener(model, "root")
        config = load_config(
            Overrides(model="scripted:model-1", home=str(folder / "home"), settings=SETTLE), cwd=folder, environ={}
        )
        store = FaultyStore(open_store(config, {}, SystemClock()))
        if dies_at is not None:
            store.die(dies_at)
        async with stock(model, folder, *SETTLE, at_rest=dies_at is None, store=store, clock=clock) as app:
            try:
                run = await app.resume("root")
                await quiet(app, run.agent)
            except RetinueError:
                assert store.is_dead
                continue
            if dies_at is None:
                assert [await endings(app, id) for id in ids] == [["interrupted"]] * 3, point
                assert [len(await notices(app, id)) for id in (ROOT, *ids)] == [1, 1, 1, 0], point
    assert [len(model.requests(label)) for label in "CGH"] == [1, 1, 1]
    return len(store.batches)


@pytest.mark.parametrize(
    ("written", "environ"),
    [
        ("recovery: {on_interrupt: settle}", {}),
        ("recovery: {onInterrupt: settle}", {}),
        ("{}", {"RETINUE_RECOVERY_ON_INTERRUPT": "settle"}),
    ],
)
def test_the_setting_can_be_written_in_each_way(tmp_path: Path, written: str, environ: dict[str, str]) -> None:
    (tmp_path / "retinue.yaml").write_text(written)
    assert load_config(Overrides(), cwd=tmp_path, environ=environ).recovery.on_interrupt == "settle"
    over = Overrides(settings=("recovery.on_interrupt=continue",))
    assert load_config(over, cwd=tmp_path, environ=environ).recovery.on_interrupt == "continue"


def test_a_setting_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_interrupt"):
        load_config(Overrides(settings=("recovery.on_interrupt=stop",)), cwd=tmp_path, environ={})
