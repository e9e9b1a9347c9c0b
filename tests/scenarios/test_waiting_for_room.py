"""Children that waited for room when their process ended. Source: architecture, section 5."""

from pathlib import Path

import pytest

from retinue.base.ids import SessionId
from retinue.testing.gate import Gate
from retinue.testing.host import audit
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from tests.scenarios.stock import CONTINUABLE, notices, quiet, stock, ticks

ROOT = SessionId("root")


@pytest.mark.parametrize("provider", ["spawn", "fork"])
async def test_after_a_crash_they_have_their_own_model_and_still_wait_for_room(provider: str, tmp_path: Path) -> None:
    instance = (
        f"{{provider: {provider}, tool_name: hand, background_mode: continuable, agent_options: {{model: other}}}}"
    )
    settings = (*CONTINUABLE, "plugins.subagent.max_concurrent=1", f"plugins.subagent.instances=[{instance}]")

    first, never = ScriptedModel(), Gate()
    hands = calls(*(call("hand", description=label, prompt="do") for label in ("A", "B")))
    first.script("R", text("one turn"), hands, text("waiting"))
    first.script("A", hold(never, text("never")))
    async with stock(first, tmp_path, *settings, at_rest=False) as app:
        agent = await app.agent(label="R", id=ROOT)
        for words in ("begin", "delegate"):
            await agent.follow_up(words).wait()
            await agent.wait_idle()
        await never.wait_reached()
        await ticks()
        assert not first.requests("B")

    second, gate = ScriptedModel(), Gate()
    second.script(ROOT, *[optional(text("noted"))] * 3)
    for label in ("A", "B"):
        second.script(label, hold(gate, text(f"{label} done")))
    async with stock(second, tmp_path, *settings, at_rest=False) as app:
        run = await app.resume(ROOT)
        await gate.wait_reached()
        await ticks(300)
        assert len([*second.requests("A"), *second.requests("B")]) == 1
        gate.open()
        await run.result()
        root = app.host.agents.get(ROOT)
        assert root is not None
        await quiet(app, root)
        assert [request.model for label in "AB" for request in second.requests(label)] == ["other", "other"]
        assert len(await notices(app, ROOT)) == 2
        await audit(app.host.sessions.store)
    second.check()
