"""What a tree has become so far, from the logs."""

from __future__ import annotations

from pathlib import Path

from retinue.base.ids import SessionId
from retinue.cli.views.state import state
from retinue.compose.tree import TreeAccount
from retinue.session.rows import Append, Batch
from retinue.store.memory import MemoryStore
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.scenarios.stock import stock

ROOT = SessionId("root")


def begins_below_root(batch: Batch) -> bool:
    """The first batch of a turn in a child's log; what a fork is made from has turns too."""
    appended = [op for op in batch.ops if isinstance(op, Append) and op.session_id != ROOT]
    types = {event.type for op in appended for event in op.events}
    return "turn/start" in types and "session/end-seed" not in types


async def test_a_fork_has_no_outcome_before_its_first_turn_has_ended(tmp_path: Path) -> None:
    model, clock, begins = ScriptedModel(), FakeClock(), Gate()
    model.script("copy", text("seen by the copy"))
    model.script("R", text("hello"), calls(call("subagent_fork", description="copy", prompt="Look.")), text("done"))
    store = FaultyStore(MemoryStore(clock))
    store.hold(begins_below_root, begins)
    async with stock(model, tmp_path, store=store, clock=clock) as app:
        agent = await app.agent(label="R", id=ROOT)
        await (await app.run("hi", agent=agent)).result()
        run = await app.run("fork yourself", agent=agent)
        await begins.wait_reached()

        now = [line.outcome for line in run.so_far().agents]
        stored = TreeAccount(ROOT)
        await stored.load(store)
        (child,) = await store.children(ROOT)
        shown = state(child, await store.read(child.header.id))
        begins.open()  # before anything can fail, since the host waits for what is on its way
        assert (now, [line.outcome for line in stored.agents], shown) == ([None], [None], "waiting")
        assert [line.outcome for line in (await run.result()).agents] == ["completed"]
