"""Children over the wire: C40, clients that see the tree and clients that do not, and what a client leaves behind."""

from pathlib import Path
from typing import Any

import pytest

from retinue.agent.signals import AgentDisposed
from retinue.session.events import TurnEnd
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from tests.acp.client import SUBAGENTS, Client, WireError, connected, text_block
from tests.scenarios.stock import CONTINUABLE, children, endings, log, notices, settled, stock, ticks

HERE: dict[str, Any] = {"run_in_background": False}
SECRET = "the inner monologue of the child"


def _delegate(label: str = "C", prompt: str = "P", **more: Any) -> Any:
    return call("subagent", description=label, prompt=prompt, **more)


async def test_a_settlement_outside_a_prompt_is_told_and_nothing_of_the_child_is(tmp_path: Path) -> None:
    gate, second = Gate(), Gate()
    model = ScriptedModel()
    model.script("", calls(_delegate()), text("started"), text("child says 7"), calls(_delegate("D")), text("again"))
    model.script("C", hold(gate, text(f"7, {SECRET}")))
    model.script("D", hold(second, text("never")))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        async with connected(app) as client:
            session = await client.new(tmp_path)
            assert await client.prompt(session, "Let somebody count.") == "end_turn"
            assert client.said(session) == "started"
            await gate.wait_reached()
            prompt = len(client.frames)
            gate.open()
            await client.wait(lambda: client.said(session) == "started\nchild says 7")
            assert all("result" not in frame for frame in client.frames[prompt:]), "no prompt was in flight"
            shown = [frame for frame in client.frames if SECRET in str(frame) or "[notice]" in str(frame)]
            assert shown == []
            assert {id for id, _ in client.updates} == {session}

            assert await client.prompt(session, "Once more.") == "end_turn"
            await second.wait_reached()
            client.notify("session/cancel", sessionId=session)
            await ticks()
            (child,) = [agent.id for agent in app.host.agents.list() if agent.label == "D"]
            with pytest.raises(WireError) as caught:
                await client.request("session/prompt", sessionId=session, prompt=[])
            assert caught.value.code == -32602
            requests = len(model.requests())
        assert app.host.agents.list() == (), "root and child have gone"
        assert await endings(app, child) == ["aborted"]
        assert len(await notices(app, session)) == 2, "the root will read of it"
        assert len(model.requests()) == requests


async def test_a_client_that_announces_it_sees_children_before_anything_of_them(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", calls(_delegate(prompt="Count them.")), text("started"), text("child says 7"))
    model.script("C", hold(gate, calls(call("glob", pattern="*"))), text("It is 7."))
    async with stock(model, tmp_path, *CONTINUABLE) as app, connected(app, capabilities=SUBAGENTS) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Let somebody count.")
        gate.open()
        await client.wait(lambda: "child says 7" in client.said(session))
        (child,) = await children(app, session)
        _announced_first(client)
        first = client.of(session, "subagent_update")[0]
        assert first["title"] == "C"
        assert first["cwd"] == str(tmp_path)
        assert first["capabilities"] == {"cancel": {}}
        states = [update["state"] for update in client.of(session, "subagent_update") if "state" in update]
        assert states[-1] == {"state": "idle", "stopReason": "end_turn"}
        assert {"state": "running"} in states
        assert client.said(child) == "It is 7."
        assert [u["kind"] for u in client.of(child, "tool_call")] == ["search"]
        assert client.of(child, "user_message_chunk") == []
        told, notice = client.of(child, "session_message")[0], client.of(session, "session_message")[-1]
        assert told["content"] == [text_block("Count them.")]
        assert (told["senderSessionId"], told["recipientSessionId"]) == (session, child)
        assert (notice["senderSessionId"], notice["recipientSessionId"]) == (child, session)
        assert "It is 7." in notice["content"][0]["text"]
        sent = client.of(session, "session_message")[0]
        assert sent["recipientMessageId"] == told["messageId"], "both views are of one message"


def _messages(client: Client, session: str) -> list[dict[str, Any]]:
    return sorted(client.of(session, "session_message"), key=lambda update: update["messageId"])


def _announced_first(client: Client) -> None:
    """No update of a session, and none that names one, comes before it was announced."""
    known = {client.updates[0][0]}
    for session, update in client.updates:
        assert session in known
        if update["sessionUpdate"] == "subagent_update":
            known.add(update["sessionId"])
        for key in ("senderSessionId", "recipientSessionId"):
            assert update.get(key) is None or update[key] in known


async def test_others_see_a_delegation_as_a_call_that_makes_progress(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(_delegate("count", **HERE)), text("7"))
    model.script("count", calls(call("glob", pattern="*")), calls(_delegate("deeper", **HERE)), text("seven"))
    model.script("deeper", text(SECRET))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Count.")
        (id,) = [u["toolCallId"] for u in client.of(session, "tool_call")]
        updates = [u for u in client.of(session, "tool_call_update") if u["toolCallId"] == id]
        lines = [u["content"][0]["content"]["text"] for u in updates]
        assert [u["status"] for u in updates] == ["in_progress"] * (len(updates) - 1) + ["completed"]
        assert lines[0] == "count: step 1"
        assert "count: step 1, glob" in lines
        assert "deeper: step 1" in lines
        assert lines[-1] == "seven"
        assert SECRET not in str(client.frames)


async def test_a_delegation_to_the_background_shows_how_it_goes_below_its_receipt(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", calls(_delegate("count")), text("started"), text("7"))
    model.script("count", hold(gate, text(SECRET)))
    async with stock(model, tmp_path, *CONTINUABLE) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Count.")
        gate.open()
        await client.wait(lambda: client.said(session) == "started\n7")
        last = client.of(session, "tool_call_update")[-1]
        assert "status" not in last, "the call itself was over before"
        assert len(last["content"]) == 2
        assert last["content"][1]["content"]["text"] == "count: done after 1 step"
        assert SECRET not in str(client.frames)


async def test_a_child_alone_can_be_cancelled_by_those_who_see_it(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", calls(_delegate()), text("started"), text("it was stopped"))
    model.script("C", hold(gate, text("never")))
    async with stock(model, tmp_path, *CONTINUABLE) as app, connected(app, capabilities=SUBAGENTS) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Start.")
        await gate.wait_reached()
        (child,) = await children(app, session)
        client.notify("session/cancel", sessionId=child)
        await client.wait(lambda: "it was stopped" in client.said(session))
        states = [u["state"] for u in client.of(session, "subagent_update") if u["sessionId"] == child]
        assert states[-1] == {"state": "idle", "stopReason": "cancelled"}


async def test_a_child_in_the_foreground_can_be_cancelled_and_its_parent_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", calls(_delegate(**HERE)), text("it was stopped"))
    model.script("C", hold(gate, text("never")))
    async with stock(model, tmp_path) as app, connected(app, capabilities=SUBAGENTS) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Start.")
        await gate.wait_reached()
        (child,) = await children(app, session)
        client.notify("session/cancel", sessionId=child)
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        assert client.said(session) == "it was stopped"


async def test_a_call_that_waits_for_a_child_is_under_way_also_for_those_who_see_the_child(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(_delegate(**HERE)), text("done"))
    model.script("C", calls(_delegate("G", "Look.", **HERE)), text("It is 7."))
    model.script("G", text("7"))
    async with stock(model, tmp_path) as app, connected(app, capabilities=SUBAGENTS) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Start.")
        (child,) = await children(app, session)
        for id in (session, child):
            assert [u.get("status") for u in client.of(id, "tool_call_update")] == ["in_progress", "completed"]


async def test_a_loaded_tree_is_told_like_a_live_one(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(_delegate(prompt="Count them.")), optional(text("started")), optional(text("7")))
    model.script("C", calls(_delegate("G", "Look.")), optional(text("started")), optional(text("It is 7.")))
    model.script("G", text("7"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        async with connected(app, capabilities=SUBAGENTS) as client:
            session = await client.new(tmp_path)
            await client.prompt(session, "Let somebody count.")
            for child in await children(app, session):
                await settled(app, child)
            await app.host.agents.roots()[0].wait_idle()
            await app.host.sessions.writer.committed()
            await ticks()
            live = client
        async with connected(app, capabilities=SUBAGENTS) as client:
            where = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
            await client.request("session/load", **where)
            _announced_first(client)
            for id in {id for id, _ in live.updates}:
                for kind in ("agent_message_chunk", "agent_thought_chunk"):
                    assert client.said(id, kind) == live.said(id, kind)
                for kind in ("tool_call", "tool_call_update"):
                    assert client.of(id, kind) == live.of(id, kind)
                # Of what happened to two agents in one millisecond, nobody knows afterwards what came first.
                assert _messages(client, id) == _messages(live, id)
        async with connected(app, capabilities=SUBAGENTS) as client:
            await client.request("session/resume", **where)
            announced = [u["sessionId"] for _, u in client.updates]
            assert len(announced) == 2, "who is there, and nothing of what was"
            assert {u["sessionUpdate"] for _, u in client.updates} == {"subagent_update"}


async def test_a_client_that_goes_cancels_its_root_and_releases_children_first(tmp_path: Path) -> None:
    inner, outer = Gate(), Gate()
    model = ScriptedModel()
    model.script("", calls(_delegate()), hold(outer, text("never")))
    model.script("C", calls(_delegate("G")), hold(inner, text("never")))
    model.script("G", hold(inner, text("never")))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        gone: list[str] = []
        with app.host.bus.on(AgentDisposed, lambda event: gone.append(event.agent.label)):
            async with connected(app) as client:
                session = await client.new(tmp_path)
                client.start_prompt(session, "Start.")
                await outer.wait_reached()
                await inner.wait_reached(2)
        assert gone == ["G", "C", ""]
        ends = [e.data for e in await log(app, session) if isinstance(e.data, TurnEnd)]
        assert [(end.reason, end.cause) for end in ends] == [("aborted", "disposed")]
        assert len(model.requests()) == 5


async def test_two_clients_on_one_retinue_do_not_disturb_each_other(tmp_path: Path) -> None:
    gates = {name: Gate() for name in ("one", "two")}
    model = ScriptedModel()
    for name, gate in gates.items():
        model.script("", calls(_delegate(name)), text("started"), *([text("done")] if name == "two" else []))
        model.script(name, hold(gate, text("7")))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app, connected(app) as second:
        async with connected(app) as first:
            one = await first.new(tmp_path)
            await first.prompt(one, "Start.")
            two = await second.new(tmp_path)
            await second.prompt(two, "Start.")
            await gates["one"].wait_reached()
            await gates["two"].wait_reached()
            assert {id for id, _ in first.updates} == {one}
            assert {id for id, _ in second.updates} == {two}
        (child,) = await children(app, one)
        assert await endings(app, child) == ["aborted"]
        gates["two"].open()
        await second.wait(lambda: second.said(two) == "started\ndone")


async def test_a_second_client_may_watch_a_session_and_its_going_leaves_it_alone(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", hold(gate, text("Here.")))
    async with stock(model, tmp_path) as app, connected(app) as first:
        session = await first.new(tmp_path)
        prompt = first.start_prompt(session, "Wait.")
        await gate.wait_reached()
        async with connected(app) as second:
            await second.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            assert second.said(session, "user_message_chunk") == "Wait."
        gate.open()
        assert (await first.answer(prompt))["stopReason"] == "end_turn"
