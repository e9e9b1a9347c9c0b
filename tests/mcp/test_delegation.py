"""What an MCP host can do with agents, without the protocol: in one process, against a scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import retinue
from retinue.compose.config import bundled_config
from retinue.errors import BadInput, IdConflict, MissingSeam, SessionNotFound
from retinue.mcp.delegation import NOTICES_AT_ONCE, Delegation
from retinue.mcp.desks import open_desks
from retinue.mcp.tools import TOOLS, parse_arguments, schema_of
from retinue.session.events import AssistantReply, TurnEnd
from retinue.session.invariants import violations
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.script import call, calls, hold, optional, text

REVIEWER = "---\nname: reviewer\ndescription: reviews\ntools: Read\n---\nYou review and change nothing.\n"


@asynccontextmanager
async def delegation(folder: Path, model: ScriptedModel, **more: Any) -> AsyncGenerator[Delegation]:
    config = bundled_config("agent-core", model="scripted:x", home=str(folder.parent / "home"), **more)
    async with retinue.open(config=config, cwd=folder, client=model, environ={}) as app, open_desks(app) as desks:
        yield Delegation(app, desks)
        store = app.host.sessions.store
        await app.host.sessions.writer.committed()
        for id in await desks.ids():
            for record in await store.read_tree(id):
                assert violations(record.events, record.rows, quiescent=False) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    folder.mkdir()
    return folder


async def test_an_agent_is_started_waited_for_and_sent_more(folder: Path) -> None:
    model = ScriptedModel(text("first"), text("second"))
    async with delegation(folder, model) as host:
        id = await host.start("look", label="a look")
        ended = await host.wait(id, 10)
        assert (ended.state, ended.outcome, ended.text, ended.settlements) == ("ended", "completed", "first", 1)
        await host.send(id, "and on")
        assert (await host.wait(id[:12], 10)).text == "second"
        (view,) = await host.agents()
        assert (view.agent_id, view.label, view.settlements) == (id, "a look", 2)
        assert view.folder == str(folder)
        assert await host.last_words(id) == "second"
    model.check()


async def test_no_model_answers_at_a_desk(folder: Path) -> None:
    model = ScriptedModel(text("done"))
    async with delegation(folder, model) as host:
        id = await host.start("look", label="a look")
        (desk,) = {view.parent_id for view in await host.agents()}
        await host.wait(id, 10)
        await host.notices(timeout_s=10)
        assert desk is not None
        log = (await host._store.read(desk)).events
    assert [type(e.data) for e in log if isinstance(e.data, TurnEnd | AssistantReply)] == [TurnEnd]
    model.check()


async def test_a_settlement_is_read_once_and_again_on_request(folder: Path) -> None:
    model = ScriptedModel()
    model.script(prompt("ONE"), text("one"))
    model.script(prompt("TWO"), text("two"))
    async with delegation(folder, model) as host:
        assert (await host.notices()).notices == []
        first = await host.start("ONE", label="one")
        begun = await host.notices(timeout_s=10)
        second = await host.start("TWO", label="two")
        more = await host.notices(begun.next, timeout_s=10)
        assert [[n.agent_id for n in some.notices] for some in (begun, more)] == [[first], [second]]
        assert "two" in more.notices[0].text
        assert (await host.notices(more.next, timeout_s=0.3)).notices == []
        assert (await host.notices()).notices == [*begun.notices, *more.notices]
    model.check()


async def test_more_notices_than_are_given_at_once_are_read_in_order(folder: Path) -> None:
    count = NOTICES_AT_ONCE + 3
    model = ScriptedModel()
    model.script(prompt("X"), text("x"), every=True)
    async with delegation(folder, model) as host:
        ids = [await host.start("X", label=str(n)) for n in range(count)]
        for id in ids:
            await host.wait(id, 30)
        first = await host.notices()
        rest = await host.notices(first.next)
        assert (len(first.notices), first.has_more, len(rest.notices), rest.has_more) == (
            NOTICES_AT_ONCE,
            True,
            3,
            False,
        )
        assert {n.agent_id for n in (*first.notices, *rest.notices)} == set(ids)


async def test_a_wait_that_is_over_too_early_says_that_the_agent_works(folder: Path) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("late")))
    async with delegation(folder, model) as host:
        id = await host.start("look", label="slow")
        view = await host.wait(id, 0)
        assert (view.state, view.outcome, view.settlements) == ("working", None, 0)
        gate.open()
        assert (await host.wait(id, 10)).text == "late"
    model.check()


async def test_the_same_key_is_the_same_agent_and_the_same_message(folder: Path) -> None:
    model = ScriptedModel(text("first"), text("second"))
    async with delegation(folder, model) as host:
        ids: list[str] = []

        async def start() -> None:
            ids.append(await host.start("look", label="a look", key="k"))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(start)
        assert len(ids) == 3
        assert len(set(ids)) == 1
        await host.wait(ids[0], 10)
        assert await host.send(ids[0], "on", key="m") == await host.send(ids[0], "on", key="m")
        assert (await host.wait(ids[0], 10)).text == "second"
        await host.send(ids[0], "on", key="m")
        assert (await host.wait(ids[0], 10)).settlements == 2
        with pytest.raises(IdConflict, match="another prompt"):
            await host.start("look elsewhere", label="a look", key="k")
        (folder / "part").mkdir()
        with pytest.raises(IdConflict, match="in folder"):
            await host.start("look", label="a look", folder="part", key="k")
        with pytest.raises(IdConflict):
            await host.send(ids[0], "off", key="m")
        assert len(await host.agents()) == 1
    model.check()


async def test_what_was_left_goes_on_after_a_restart_under_the_same_id(folder: Path) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, optional(text("never"))))
    async with delegation(folder, model) as host:
        id = await host.start("look", label="a look", key="k")
        await gate.wait_reached()
    model = ScriptedModel(text("late"))
    async with delegation(folder, model) as host:
        assert await host.start("look", label="a look", key="k") == id
        assert (await host.wait(id, 10)).text == "late"
        read = await host.notices()
    async with delegation(folder, ScriptedModel()) as host:
        assert await host.notices() == read
        assert (await host.notices(read.next)).notices == []
        assert [view.outcome for view in await host.agents()] == ["completed"]
    model.check()


async def test_an_interrupted_agent_has_ended_and_goes_on_with_the_next_message(folder: Path) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, optional(text("never"))), text("then"))
    async with delegation(folder, model) as host:
        id = await host.start("look", label="slow")
        await gate.wait_reached()
        await host.interrupt(id, key="i")
        assert (await host.wait(id, 10)).outcome == "aborted"
        await host.send(id, "on")
        await host.interrupt(id, key="i")
        assert (await host.wait(id, 10)).text == "then"


async def test_a_stopped_agent_has_ended_with_those_below_it(folder: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    start = call("subagent", description="inner", prompt="INNER", run_in_background=True)
    model.script(prompt("OUTER"), calls(start), text("waiting"))
    model.script(prompt("INNER"), hold(gate, optional(text("never"))))
    async with delegation(folder, model) as host:
        id = await host.start("OUTER", label="outer")
        await gate.wait_reached()
        assert (await host.wait(id, 0)).state == "working"
        (inner,) = await host.agents(id)
        assert (inner.label, inner.state, inner.parent_id) == ("inner", "working", id)
        await host.stop(id)
        assert (await host.wait(id, 10)).state == "ended"
        assert [(view.state, view.outcome) for view in await host.agents(id)] == [("ended", "aborted")]


async def test_an_agent_file_says_who_the_agent_is(folder: Path) -> None:
    (folder / ".retinue" / "agents").mkdir(parents=True)
    (folder / ".retinue" / "agents" / "reviewer.md").write_text(REVIEWER)
    model = ScriptedModel(text("done"))
    async with delegation(folder, model) as host:
        await host.wait(await host.start("look", label="a look", kind="reviewer"), 10)
        with pytest.raises(BadInput, match="there are: reviewer"):
            await host.start("look", label="a look", kind="poet")
    (seen,) = model.requests()
    assert "You review and change nothing." in seen.system
    assert {"read"} <= set(seen.tool_names) <= {"read", "report"}


async def test_agents_work_in_folders_of_the_served_one_alone(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "away").symlink_to(folder.parent)
    model = ScriptedModel(text("done"))
    async with delegation(folder, model) as host:
        id = await host.start("look", label="a look", folder="part")
        assert (await host.wait(id, 10)).folder == str(folder / "part")
        for outside in ("..", "away", "/"):
            with pytest.raises(BadInput, match="lies outside"):
                await host.start("look", label="a look", folder=outside)
        with pytest.raises(BadInput, match="is not a folder"):
            await host.start("look", label="a look", folder="nowhere")
        with pytest.raises(BadInput, match="zero bytes"):
            await host.start("look", label="a look", folder="no\0where")


async def test_sessions_that_are_not_of_the_workspace_cannot_be_reached(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with delegation(other, ScriptedModel(text("done"))) as host:
        id = await host.start("look", label="elsewhere")
        await host.wait(id, 10)
    async with delegation(folder, ScriptedModel()) as host:
        assert await host.agents() == []
        (desk,) = await host._desks.ids()
        for unknown in (id, desk, "agent-none", "x" * 1000):
            with pytest.raises(SessionNotFound, match="list the agents") as refused:
                await host.wait(unknown, 0)
            assert len(str(refused.value)) < 250
            with pytest.raises(SessionNotFound):
                await host.send(unknown, "hello")


@pytest.mark.parametrize("since", ["x", "1", "1:x", "1:2:3", "-1:0", "1:-1", "1:999", "7:0", "x" * 1000])
async def test_a_place_that_no_reading_gave_is_refused(folder: Path, since: str) -> None:
    async with delegation(folder, ScriptedModel()) as host:
        with pytest.raises(BadInput, match="`next`|no reading") as refused:
            await host.notices(since)
        assert len(str(refused.value)) < 250


async def test_a_listing_follows_the_agents(folder: Path) -> None:
    gate = Gate()
    model = ScriptedModel(text("first"), hold(gate, optional(text("never"))))
    async with delegation(folder, model) as host:

        async def standing() -> list[tuple[str, int, str | None]]:
            return [(view.state, view.settlements, view.outcome) for view in await host.agents()]

        id = await host.start("look", label="a look")
        await host.wait(id, 10)
        assert await standing() == await standing() == [("ended", 1, "completed")]
        await host.send(id, "on")
        await gate.wait_reached()
        assert await standing() == await standing() == [("working", 1, None)]
        await host.interrupt(id)
        await host.wait(id, 10)
        assert await standing() == await standing() == [("ended", 2, "aborted")]
    model.check()


async def test_nothing_is_started_for_nothing(folder: Path) -> None:
    async with delegation(folder, ScriptedModel()) as host:
        with pytest.raises(BadInput, match="prompt"):
            await host.start(" ", label="empty")
        with pytest.raises(BadInput, match="key"):
            await host.start("look", label="empty", key="")
        assert await host.agents() == []


async def test_without_delegation_there_is_nothing_to_serve(folder: Path) -> None:
    plugins: Any = {"subagent": None, "report": None, "agents": None}
    with pytest.raises(MissingSeam, match="retinue mcp"):
        async with delegation(folder, ScriptedModel(), plugins=plugins):
            pass


def test_every_tool_has_a_schema_and_words_for_the_host() -> None:
    for name, tool in TOOLS.items():
        schema: Any = schema_of(tool)
        assert schema["type"] == "object"
        assert "$defs" not in schema
        assert all(part.get("description") for part in schema["properties"].values()), name
        assert tool.__doc__


def test_arguments_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"wait_agent.*timeout_s"):
        parse_arguments("wait_agent", {"agent_id": "agent-1", "timeout_s": 601})
    with pytest.raises(BadInput, match="start_agent"):
        parse_arguments("nothing", {})


async def test_a_call_that_needs_an_approval_is_refused_since_nobody_is_there_to_ask(folder: Path) -> None:
    (folder / "notes.txt").write_text("milk")
    model = ScriptedModel(calls(call("read", path="notes.txt")), text("refused"))
    settings: Any = {"permissions": {"rules": {"ask": ["read"]}}}
    async with delegation(folder, model, plugins=settings) as host:
        assert (await host.wait(await host.start("look", label="a look"), 10)).text == "refused"
    assert "milk" not in str(model.requests()[-1].messages)
    model.check()
