"""A process ends while rounds are at work: those that had ended are read from their logs, and the last one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.session.events import TurnEnd, WorkflowAgentStart, WorkflowEnd, WorkflowStart
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Reply, call, calls, hold, text
from tests.scenarios.stock import children, log, stock

ON = "plugins.ralph={}"


def says(status: str, hand_off: str) -> Reply:
    return calls(call("structured_output", status=status, hand_off=hand_off))


async def cut_off_in_round_two(folder: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("R", calls(call("ralph", objective="Count.")))
    model.script("round 1", says("continue", "one"))
    model.script("round 2", hold(never, text("never")))
    async with stock(model, folder, ON, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached()


@pytest.mark.parametrize("settings", [(), ("plugins.ralph.max_rounds=3", "plugins.ralph.hand_off_chars=50")])
async def test_a_round_that_ended_is_not_run_again_and_the_one_at_work_goes_on(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    await cut_off_in_round_two(tmp_path)
    again = ScriptedModel(text("done"))  # for the root
    again.script("round 2", says("continue", "one, two"))
    again.script("round 3", says("complete", "one, two, three"))
    async with stock(again, tmp_path, ON, *settings) as app:
        run = await app.resume("root")
        await run.agent.wait_idle()
        (result,) = again.requests()[-1].results
        assert result == (
            "Complete in round 3:\n\none, two, three\n\n"
            "[a process ended in the middle of it; rounds found again with what they had done: 2]"
        )
        assert "one, two" in again.requests("round 3")[0].users[0]
        assert len(await children(app, run.agent.id)) == 3
        events = [event.data for event in await log(app, run.agent.id)]
        assert [data.n for data in events if isinstance(data, WorkflowStart)] == [1, 2]
        labels = [data.label for data in events if isinstance(data, WorkflowAgentStart)]
        assert labels == ["round 1", "round 2", "round 1", "round 2", "round 3"]
        assert [data.detail for data in events if isinstance(data, WorkflowEnd)] == ["complete"]


async def test_by_configuration_a_round_that_was_cut_off_has_failed(tmp_path: Path) -> None:
    await cut_off_in_round_two(tmp_path)
    again = ScriptedModel(text("done"))  # for the root
    async with stock(again, tmp_path, ON, "recovery.on_interrupt=settle") as app:
        run = await app.resume("root")
        await run.agent.wait_idle()
        (result,) = again.requests()[-1].results
        assert result.startswith("Error: Round 2 failed: interrupted")
        assert "The round before it handed on:\n\none" in result
        _, second = await children(app, run.agent.id)
        ends = [event.data.reason for event in await log(app, second) if isinstance(event.data, TurnEnd)]
        assert ends == ["interrupted"]
