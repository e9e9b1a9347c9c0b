"""Questions over the wire: which call, whose, and what becomes of every kind of answer."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.acp.permission import ClientAnswers
from retinue.acp.tree import TreeView
from retinue.base.ids import SessionId
from retinue.base.jsonrpc import Peer
from retinue.host.approvals import Approvals, Question
from retinue.session.events import ApprovalAsked, ApprovalDecided
from retinue.testing.model import ScriptedModel
from retinue.testing.pipes import pipe_pair
from retinue.testing.script import call, calls, text
from tests.acp.client import SUBAGENTS, Client, connected
from tests.scenarios.stock import log, stock

ASK = 'plugins.permissions.rules={ask: ["write"]}'
HERE: dict[str, Any] = {"run_in_background": False}


def _write(name: str = "a.txt") -> Any:
    return calls(call("write", path=name, content="new\n"))


async def _asked(client: Client, count: int = 1) -> dict[str, Any]:
    await client.wait(lambda: len(client.asked) >= count)
    return client.asked[count - 1]


def _answer(client: Client, asked: dict[str, Any], result: Any) -> None:
    client.give({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def _select(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


async def test_a_call_is_asked_about_with_its_change_and_runs_when_it_is_allowed(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", _write(), text("written"))
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        asked = await _asked(client)
        params = asked["params"]
        (shown,) = client.of(session, "tool_call")
        assert params["sessionId"] == session
        assert params["toolCall"]["toolCallId"] == shown["toolCallId"]
        assert params["toolCall"]["content"] == [{"type": "diff", "path": str(tmp_path / "a.txt"), "newText": "new\n"}]
        assert [option["kind"] for option in params["options"]] == ["allow_once", "allow_always", "reject_once"]
        assert not (tmp_path / "a.txt").exists()
        _answer(client, asked, _select("allow"))
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        assert (tmp_path / "a.txt").read_text() == "new\n"


async def test_a_question_about_a_file_that_is_there_shows_what_would_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    model = ScriptedModel()
    model.script("", _write(), text("not written"))
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        asked = await _asked(client)
        change = {"type": "diff", "path": str(tmp_path / "a.txt"), "oldText": "old\n", "newText": "new\n"}
        assert asked["params"]["toolCall"]["content"] == [change]
        _answer(client, asked, _select("reject"))
        await client.answer(prompt)


async def test_what_is_allowed_from_now_on_is_not_asked_again(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", _write(), _write("b.txt"), text("written"))
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        _answer(client, await _asked(client), _select("always"))
        await client.answer(prompt)
        assert len(client.asked) == 1
        assert (tmp_path / "b.txt").exists()


@pytest.mark.parametrize(
    "result", [_select("reject"), _select("whatever"), {"outcome": {"outcome": "cancelled"}}, {}, 7, None, [1], "allow"]
)
async def test_every_other_answer_is_a_rejection(tmp_path: Path, result: Any) -> None:
    model = ScriptedModel()
    model.script("", _write(), text("not written"))
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        _answer(client, await _asked(client), result)
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        assert not (tmp_path / "a.txt").exists()
        decided = [e.data.verb for e in await log(app, session) if isinstance(e.data, ApprovalDecided)]
        assert decided == ["reject"]


async def test_a_client_that_cannot_ask_rejects(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", _write(), text("not written"))
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        asked = await _asked(client)
        client.give({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "what?"}})
        await client.answer(prompt)
        assert not (tmp_path / "a.txt").exists()


async def test_a_cancelled_prompt_withdraws_its_question(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", _write())
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        asked = await _asked(client)
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(prompt))["stopReason"] == "cancelled"
        await client.wait(lambda: [f for f in client.frames if f.get("method") == "$/cancel_request"])
        (withdrawn,) = [f for f in client.frames if f.get("method") == "$/cancel_request"]
        assert withdrawn["params"] == {"requestId": asked["id"]}
        _answer(client, asked, _select("allow"))
        await client.request("session/list")
        assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("capabilities", [None, SUBAGENTS])
async def test_a_child_asks_under_its_own_name(tmp_path: Path, capabilities: dict[str, Any] | None) -> None:
    model = ScriptedModel()
    model.script("", calls(call("subagent", description="scribe", prompt="P", **HERE)), text("it wrote"))
    model.script("scribe", calls(call("subagent", description="pen", prompt="P", **HERE)), text("it wrote"))
    model.script("pen", _write(), text("written"))
    async with stock(model, tmp_path, ASK) as app, connected(app, capabilities=capabilities) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Let somebody write.")
        asked = await _asked(client)
        pen = next(agent.id for agent in app.host.agents.list() if agent.label == "pen")
        called = asked["params"]["toolCall"]
        if capabilities is None:
            assert asked["params"]["sessionId"] == session
            assert called["title"] == "scribe > pen: write: a.txt"
        else:
            assert asked["params"]["sessionId"] == pen
            assert called["title"] == "write: a.txt"
            assert called["toolCallId"] == client.of(pen, "tool_call")[0]["toolCallId"]
            states = [u["state"] for _, u in client.updates if u.get("sessionId") == pen]
            assert states[-1] == {"state": "requires_action"}
        _answer(client, asked, _select("allow"))
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        assert (tmp_path / "a.txt").exists()


async def test_a_question_that_nobody_answered_is_asked_the_next_client_under_the_same_id(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", _write(), text("written"))
    async with stock(model, tmp_path, ASK, at_rest=False) as app, connected(app) as client:
        session = await client.new(tmp_path)
        client.start_prompt(session, "Write.")
        await _asked(client)
        await app.host.suspend()  # the process ends as a signal ends it
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        await client.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        asked = await _asked(client)
        assert asked["params"]["toolCall"]["toolCallId"] == client.of(session, "tool_call")[0]["toolCallId"]
        _answer(client, asked, _select("allow"))
        await client.wait(lambda: client.said(session) == "written")
        events = [e.data for e in await log(app, session)]
        assert len([data for data in events if isinstance(data, ApprovalAsked)]) == 1
        assert json.dumps(client.frames).count("session/request_permission") == 1


async def test_a_child_whose_question_waits_is_said_to_wait_also_after_a_crash(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(call("subagent", description="pen", prompt="P", **HERE)), text("it wrote"))
    model.script("pen", calls(call("write", path="a.txt", content="new\n"), call("glob", pattern="*")), text("written"))
    async with stock(model, tmp_path, ASK, at_rest=False) as app, connected(app, capabilities=SUBAGENTS) as client:
        session = await client.new(tmp_path)
        client.start_prompt(session, "Let somebody write.")
        pen = (await _asked(client))["params"]["sessionId"]
        await app.host.suspend()  # the process ends as a signal ends it
    async with stock(model, tmp_path, ASK) as app, connected(app, capabilities=SUBAGENTS) as client:
        await client.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        asked = await _asked(client)
        await client.request("session/list")
        states = [u["state"]["state"] for _, u in client.updates if u.get("sessionId") == pen]
        assert states[-1] == "requires_action"
        _answer(client, asked, _select("allow"))
        await client.wait(lambda: client.said(session) == "it wrote")
        states = [u["state"]["state"] for _, u in client.updates if u.get("sessionId") == pen]
        assert states[-2:] == ["running", "idle"]


async def test_a_session_that_is_loaded_once_more_asks_anew_and_takes_the_old_question_back(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", _write(), text("written"))
    async with stock(model, tmp_path, ASK) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Write.")
        first = await _asked(client)
        await client.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
        second = await _asked(client, 2)
        await client.wait(lambda: [f for f in client.frames if f.get("method") == "$/cancel_request"])
        (withdrawn,) = [f for f in client.frames if f.get("method") == "$/cancel_request"]
        assert withdrawn["params"] == {"requestId": first["id"]}
        _answer(client, second, _select("allow"))
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        assert (tmp_path / "a.txt").exists()


async def _unanswered(*_: Any) -> None:
    raise AssertionError("nothing is sent here")


async def test_a_question_that_is_asked_again_in_the_instant_it_is_taken_back_is_put_once_more() -> None:
    question = Question(
        id="q",
        root=SessionId("s"),
        agent=SessionId("s"),
        label="",
        path=("root",),
        tool="glob",
        arguments={},
        about=None,
        rule="r",
    )
    ours, theirs = pipe_pair()
    peer = Peer(ours, _unanswered)
    view = TreeView(question.root, lambda _session, _update: None, subagents=False)
    frames: list[dict[str, Any]] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(peer.run)
            answers = ClientAnswers(Approvals(), view, peer, group.start_soon)
            answers.asked(question)
            frames += map(json.loads, (await theirs.receive()).splitlines())
            answers.withdrawn(question)
            answers.asked(question)
            while len(frames) < 3:
                frames += map(json.loads, (await theirs.receive()).splitlines())
            answers.withdrawn(question)
            frames += map(json.loads, (await theirs.receive()).splitlines())
            group.cancel_scope.cancel()
    assert [frame["method"] for frame in frames] == ["session/request_permission", "$/cancel_request"] * 2
