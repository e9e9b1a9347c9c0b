"""What children say fills only a bounded part of their parent's context; all of it stays readable."""

from __future__ import annotations

import re
from pathlib import Path

from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from tests.scenarios.stock import CONTINUABLE, quiet, said_to, stock

CHILDREN = 10


def long(mark: str) -> str:
    return f"begin {mark}\n" + "x" * 200_000 + f"\nend {mark}"


async def test_ten_children_with_long_words_leave_room_in_their_parents_context(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    starts = [call("subagent", description=f"C{i}", prompt="P") for i in range(CHILDREN)]
    root = model.script("R", calls(*starts), hold(gate, text("started")))
    for i in range(CHILDREN):
        said = (calls(call("report", output=long(f"report {i}"))),) if i < 2 else ()
        model.script(f"C{i}", *said, text(long(f"closing {i}")))
    root.add(*[optional(text("noted"))] * (2 * CHILDREN))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await gate.wait_reached()
        gate.open()
        await quiet(app, agent)
        said = said_to(model.requests("R")[-1])
        assert sum(len(one) for one in said) < (CHILDREN + 2) * 18_000
        words = [one for one in said if one.startswith(("[notice] Agent", "[report]"))]
        assert len(words) == CHILDREN + 2
        for one in words:
            mark = re.search(r"begin (\w+ \d+)\n", one)
            path = re.search(r"Full text: (\S+) ", one)
            assert mark is not None
            assert path is not None
            assert f"end {mark[1]}" in one
            assert Path(path[1]).is_relative_to(tmp_path / "home/spill")
            assert Path(path[1]).read_text() == long(mark[1])
            assert Path(path[1]).stat().st_mode & 0o777 == 0o600
        (first, *_) = re.findall(r"Full text: (\S+) ", words[0])
        model.script("S", calls(call("read", path=first, limit=1)), text("read"))
        reader = await app.agent(label="S")
        await reader.follow_up("read it").wait()
        await quiet(app, reader)
        assert "begin" in model.requests("S")[-1].results[-1]
