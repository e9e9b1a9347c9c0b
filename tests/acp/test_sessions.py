"""Sessions over the wire: what a client asks, and what it is told."""

import base64
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from retinue.base.ids import SessionId
from retinue.model.content import Image, Text
from retinue.plugins.permissions import PERMISSIONS
from retinue.session.events import UserMessage
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Reply, call, calls, fail, hold, optional, refuse, text, truncated
from retinue.tools.function import tool
from tests.acp.client import Client, WireError, connected, text_block
from tests.scenarios.stock import log, stock

INVALID_PARAMS, INTERNAL, NOT_FOUND, CANCELLED = -32602, -32603, -32002, -32800
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nand so on").decode()
GIF = base64.b64encode(b"GIF89a and so on").decode()


async def _fails(client: Any, method: str, **params: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        await client.request(method, **params)
    return caught.value


async def _outcome(client: Client, id: int) -> int:
    """The code of the error that a request under way fails with; 0 if it does not."""
    try:
        await client.answer(id)
    except WireError as error:
        return error.code
    return 0


async def test_a_prompt_streams_what_the_model_says_and_thinks_and_answers_when_all_was_told(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", text("It is a harbour.", reasoning="Water, boats."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        assert await client.prompt(session, "What is it?") == "end_turn"
        assert client.said(session) == "It is a harbour."
        assert client.said(session, "agent_thought_chunk") == "Water, boats."
        assert len(client.of(session, "agent_message_chunk")) > 1, "it streams"
        assert client.of(session, "session_info_update")[0]["title"] == "What is it?"
        assert client.of(session, "user_message_chunk") == [], "it knows what it said"
        assert "result" in client.frames[-1], "the answer is the last frame"


async def test_tool_calls_show_kind_place_and_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("zero\none\n")
    model = ScriptedModel()
    model.script(
        "",
        calls(call("read", path="a.txt", offset=2, limit=1)),
        calls(call("edit", path="a.txt", old_string="one", new_string="two")),
        calls(call("write", path="b.txt", content="new\n"), call("read", path="missing.txt")),
        text("Done."),
    )
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Change it.")
        shown: dict[str, dict[str, Any]] = {}
        states: dict[str, list[str]] = {}
        for update in client.of(session):
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                id = update["toolCallId"]
                shown[id] = shown.get(id, {}) | update
                states.setdefault(id, []).append(update.get("status", "pending"))
    read, edit, write, missing = shown.values()
    assert [c["kind"] for c in shown.values()] == ["read", "edit", "edit", "read"]
    assert list(states.values()) == [["pending", "in_progress", "completed"]] * 3 + [
        ["pending", "in_progress", "failed"]
    ]
    assert read["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]
    assert read["title"] == "read: a.txt (lines 2-2)"
    assert read["rawInput"] == {"path": "a.txt", "offset": 2, "limit": 1}
    assert read["content"][0]["content"]["text"].startswith("```console\n     2\tone\n")
    assert edit["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 2}]
    assert "it now reads" in edit["rawOutput"]["output"], "what the content does not show"
    assert write["rawOutput"]["did"] == "created"
    assert edit["content"] == [{"type": "diff", "path": str(tmp_path / "a.txt"), "oldText": "one", "newText": "two"}]
    assert write["content"] == [{"type": "diff", "path": str(tmp_path / "b.txt"), "newText": "new\n"}]
    assert "missing.txt" in missing["content"][0]["content"]["text"]
    assert missing["title"] == "read: missing.txt"


async def test_an_offset_of_a_tool_of_your_own_is_no_line(tmp_path: Path) -> None:
    @tool
    async def dump(path: str, offset: int) -> str:
        """Dump bytes."""
        return f"{path} from {offset}"

    model = ScriptedModel()
    model.script("", calls(call("dump", path="a.bin", offset=512)), text("Done."))
    async with stock(model, tmp_path, tools=[dump]) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Dump it.")
        (shown,) = client.of(session, "tool_call")
    assert shown["locations"] == [{"path": str(tmp_path / "a.bin")}]


async def test_a_session_in_which_a_path_was_none_is_told_and_loaded_like_any_other(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(call("read", path="~\0")), calls(call("write", path="~a\0b", content="x")), text("Done."))
    async with stock(model, tmp_path) as app:
        async with connected(app) as client:
            session = await client.new(tmp_path)
            await client.prompt(session, "Read it.")
            live = client.of(session, "tool_call")
        async with connected(app) as client:
            await client.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            loaded = client.of(session, "tool_call")
    assert [shown["title"].split(":")[0] for shown in live] == ["read", "write"]
    assert loaded == live


async def test_a_file_that_is_replaced_is_shown_as_what_changed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 21)))
    after = "".join(f"{n}\n" for n in [*range(1, 10), "ten", *range(11, 21)])
    model = ScriptedModel()
    model.script(
        "", calls(call("read", path="a.txt")), calls(call("write", path="a.txt", content=after)), text("Done.")
    )
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Change it.")
        written = client.of(session, "tool_call_update")[-1]
    assert written["content"] == [
        {
            "type": "diff",
            "path": str(tmp_path / "a.txt"),
            "oldText": "7\n8\n9\n10\n11\n12\n13\n",
            "newText": "7\n8\n9\nten\n11\n12\n13\n",
        }
    ]
    assert written["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 10}]
    assert set(written["rawOutput"]) == {"path", "did", "line", "output"}


async def test_what_the_model_writes_down_to_do_is_a_plan(tmp_path: Path) -> None:
    items: list[Any] = [{"content": "Look", "status": "completed"}, {"content": "Mend", "status": "in_progress"}]
    model = ScriptedModel()
    model.script("", calls(call("todo", items=items)), text("Written."))
    async with stock(model, tmp_path, "plugins.todo={}") as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Plan.")
        (plan,) = client.of(session, "plan")
    assert plan["entries"] == [{**item, "priority": "medium"} for item in items]


@pytest.mark.parametrize(
    ("reply", "reason"), [(truncated("It is"), "max_tokens"), (refuse("No."), "refusal"), (text("Yes."), "end_turn")]
)
async def test_a_stop_reason_says_what_happened(tmp_path: Path, reply: Reply, reason: str) -> None:
    model = ScriptedModel()
    model.script("", reply)
    async with stock(model, tmp_path) as app, connected(app) as client:
        assert await client.prompt(await client.new(tmp_path), "Well?") == reason


async def test_a_turn_that_fails_is_an_error_and_the_session_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", fail("auth", message="the key is wrong"), text("Better."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        error = await _fails(client, "session/prompt", sessionId=session, prompt=[text_block("Well?")])
        assert error.code == INTERNAL
        assert "the key is wrong" in str(error)
        assert await client.prompt(session, "And now?") == "end_turn"


async def test_cancel_ends_the_prompt_and_a_second_prompt_meanwhile_is_refused(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", hold(gate, text("never")), text("Here."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Wait.")
        await gate.wait_reached()
        error = await _fails(client, "session/prompt", sessionId=session, prompt=[text_block("Me too.")])
        assert error.code == INVALID_PARAMS
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(prompt))["stopReason"] == "cancelled"
        assert await client.prompt(session, "Still there?") == "end_turn"
        client.notify("session/cancel", sessionId=session)
        client.notify("session/cancel", sessionId="nobody")
        await client.request("session/set_mode", sessionId=session, modeId="read-only")


async def test_a_request_that_is_cancelled_is_answered_so_and_its_turn_ends(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", hold(gate, text("never")))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Wait.")
        await gate.wait_reached()
        client.notify("$/cancel_request", requestId=prompt)
        with pytest.raises(WireError) as caught:
            await client.answer(prompt)
        assert caught.value.code == -32800


async def test_a_prompt_takes_text_images_and_resources(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", text("Seen."))
    prompt = [
        text_block("Look:"),
        {"type": "image", "mimeType": "image/png", "data": PNG},
        {"type": "resource_link", "name": "a.txt", "uri": "file:///a.txt", "description": "a list"},
        {
            "type": "resource",
            "resource": {"uri": "file:///b.txt", "text": "in </resource> here", "mimeType": "text/plain"},
        },
        {"type": "resource", "resource": {"uri": "file:///c.gif", "blob": GIF, "mimeType": "image/png"}},
    ]
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.request("session/prompt", sessionId=session, prompt=prompt)
        (message,) = [
            e.data for e in await log(app, session) if isinstance(e.data, UserMessage) and e.data.source.kind == "user"
        ]
    assert message.content == (
        Text("Look:"),
        Image("image/png", PNG),
        Text("[a.txt](file:///a.txt): a list"),
        Text('<resource uri="file:///b.txt">\nin &lt;/resource> here\n</resource>\n'),
        Image("image/gif", GIF),
    )


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [text_block("  ")],
        [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}],
        [{"type": "image", "data": "aGk=", "mimeType": "image/tiff"}],
        [{"type": "image", "data": "aGk=", "mimeType": "image/png"}],
        [{"type": "image", "data": "", "mimeType": "image/png"}],
        [{"type": "image", "data": "!" + PNG, "mimeType": "image/png"}],
        [{"type": "image", "data": PNG.rstrip("="), "mimeType": "image/png"}],
        [{"type": "resource", "resource": {"uri": "x"}}],
        [{"type": "resource", "resource": {"uri": "x", "blob": "aGk=", "mimeType": "application/pdf"}}],
        [{"type": "song"}],
        ["text"],
        [text_block("fine"), {"type": "text", "text": 7}],
    ],
)
async def test_a_prompt_that_cannot_be_read_is_refused_and_changes_nothing(tmp_path: Path, prompt: list[Any]) -> None:
    async with stock(ScriptedModel(), tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        error = await _fails(client, "session/prompt", sessionId=session, prompt=prompt)
        assert error.code == INVALID_PARAMS


async def test_modes_are_the_permissions_and_a_change_is_told(tmp_path: Path) -> None:
    async with stock(ScriptedModel(), tmp_path) as app, connected(app) as client:
        made = await client.request("session/new", cwd=str(tmp_path), mcpServers=[])
        session = SessionId(made["sessionId"])
        assert made["modes"]["currentModeId"] == "workspace-write"
        assert [mode["id"] for mode in made["modes"]["availableModes"]] == [
            "read-only",
            "workspace-write",
            "full-access",
        ]
        await client.request("session/set_mode", sessionId=session, modeId="read-only")
        assert app.host.require(PERMISSIONS, needed_by="a test").preset(session) == "read-only"
        await client.wait(lambda: client.of(session, "current_mode_update"))
        assert client.of(session, "current_mode_update")[-1]["currentModeId"] == "read-only"
        assert (await _fails(client, "session/set_mode", sessionId=session, modeId="god")).code == INVALID_PARAMS
        assert (await _fails(client, "session/set_mode", sessionId="x", modeId="read-only")).code == NOT_FOUND


async def test_a_mode_that_was_chosen_lasts_whatever_permission_the_next_process_gives_new_sessions(
    tmp_path: Path,
) -> None:
    async with stock(ScriptedModel(), tmp_path, 'permission="full-access"') as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.request("session/set_mode", sessionId=session, modeId="read-only")
    async with stock(ScriptedModel(), tmp_path, 'permission="full-access"') as app, connected(app) as client:
        for method in ("session/load", "session/resume"):
            loaded = await client.request(method, sessionId=session, cwd=str(tmp_path), mcpServers=[])
            assert loaded["modes"]["currentModeId"] == "read-only"
        made = await client.request("session/new", cwd=str(tmp_path), mcpServers=[])
        assert made["modes"]["currentModeId"] == "full-access"


@pytest.mark.parametrize(
    "params",
    [
        {"cwd": "relative", "mcpServers": []},
        {"cwd": "/does/not/exist", "mcpServers": []},
        {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/tmp"]},
        {"cwd": "/with/a\0nothing", "mcpServers": []},
        {"cwd": 7, "mcpServers": []},
        {"mcpServers": []},
        {"cwd": "/", "mcpServers": 3},
    ],
)
async def test_a_session_that_cannot_be_made_is_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    async with stock(ScriptedModel(), tmp_path) as app, connected(app) as client:
        assert (await _fails(client, "session/new", **params)).code == INVALID_PARAMS
        for method in ("session/load", "session/resume"):  # which name a session that is not there
            code = NOT_FOUND if params == {"cwd": "/does/not/exist", "mcpServers": []} else INVALID_PARAMS
            assert (await _fails(client, method, sessionId="s", **params)).code == code
        assert await app.host.sessions.store.roots() == []


async def test_a_session_is_loaded_with_all_that_was_said_and_resumed_without(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(call("glob", pattern="*.md")), text("No page.", reasoning="Empty."), text("Still none."))
    async with stock(model, tmp_path) as app:
        async with connected(app) as client:
            session = await client.new(tmp_path)
            await client.prompt(session, "Are there pages?")
            live = [u for u in client.of(session) if u["sessionUpdate"].startswith("tool_call")]
        assert app.host.agents.roots() == (), "the client has gone, and its agent with it"
        async with connected(app) as client:
            where = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
            loaded = await client.request("session/load", **where)
            assert loaded["modes"]["currentModeId"] == "workspace-write"
            assert "result" in client.frames[-1], "the history comes before the answer"
            assert client.said(session, "user_message_chunk") == "Are there pages?"
            assert client.said(session) == "No page."
            assert client.said(session, "agent_thought_chunk") == "Empty."
            assert [u for u in client.of(session) if u["sessionUpdate"].startswith("tool_call")] == live
            assert await client.prompt(session, "And now?") == "end_turn"
            assert client.said(session) == "No page.\nStill none."
        async with connected(app) as client:
            assert await client.request("session/resume", **where) == loaded
            assert client.updates == []
            assert (await _fails(client, "session/load", **{**where, "cwd": "/"})).code == INVALID_PARAMS
            assert (await _fails(client, "session/load", **{**where, "sessionId": "no"})).code == NOT_FOUND


async def test_sessions_are_listed_by_folder_newest_first(tmp_path: Path) -> None:
    model = ScriptedModel()
    other = tmp_path / "other"
    other.mkdir()
    model.script("", text("One."))
    model.script("", text("Two."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        first = await client.new(tmp_path)
        await client.prompt(first, "The first\nof two")
        second = await client.new(other)
        await client.prompt(second, "The second")
        listed = (await client.request("session/list"))["sessions"]
        assert {(info["sessionId"], info["title"]) for info in listed} == {
            (first, "The first of two"),
            (second, "The second"),
        }
        listed = await client.request("session/list", cwd=str(other))
        assert [info["sessionId"] for info in listed["sessions"]] == [second]
        assert (await _fails(client, "session/list", cursor="nothing")).code == INVALID_PARAMS


async def test_a_closed_session_is_gone_until_it_is_loaded(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.script("", hold(gate, text("never")))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        prompt = client.start_prompt(session, "Wait.")
        await gate.wait_reached()
        assert await client.request("session/close", sessionId=session) == {}
        assert (await client.answer(prompt))["stopReason"] == "cancelled"
        assert app.host.agents.roots() == ()
        assert (await _fails(client, "session/close", sessionId=session)).code == NOT_FOUND
        error = await _fails(client, "session/prompt", sessionId=session, prompt=[text_block("Well?")])
        assert error.code == NOT_FOUND
        await client.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])


async def test_what_somebody_else_sends_to_a_session_is_shown(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", text("Good morning."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        agent = app.host.agents.roots()[0]
        await agent.follow_up("Good morning").wait()
        await client.wait(lambda: client.said(session))
        assert client.said(session, "user_message_chunk") == "Good morning"


async def test_a_session_whose_agent_was_ended_elsewhere_comes_back_with_the_next_prompt(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", text("Here."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await app.close(app.host.agents.roots()[0])
        assert await client.prompt(session, "Are you there?") == "end_turn"


async def test_a_history_may_be_longer_than_what_may_be_left_unread(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", *[text(f"{n} " + "words " * 1000) for n in range(10)])
    async with stock(model, tmp_path) as app:
        async with connected(app) as client:
            session = await client.new(tmp_path)
            for _ in range(10):
                await client.prompt(session, "Say a lot.")
        async with connected(app, max_line_bytes=10_000) as client:
            await client.request("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
            assert len(client.said(session)) > 50_000


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_load_that_is_broken_off_at_any_moment_changes_nothing(tmp_path: Path, is_open: bool) -> None:
    where: dict[str, Any] = {"cwd": str(tmp_path), "mcpServers": []}
    model = ScriptedModel()
    model.script("", text("word " * 500), *[optional(text(f"answer {n}")) for n in range(60)])
    async with stock(model, tmp_path) as app, connected(app, max_line_bytes=64_000) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Say a lot.")
        if not is_open:
            await client.request("session/close", sessionId=session)
        outcomes, answers = set[int](), 0
        for moment in range(0, 60, 4):
            loading = client.start("session/load", sessionId=session, **where)
            for _ in range(moment):
                await anyio.lowlevel.checkpoint()
            client.notify("$/cancel_request", requestId=loading)
            outcome = await _outcome(client, loading)
            outcomes.add(outcome)
            if outcome == CANCELLED and not is_open:
                assert not app.host.sessions.holds(session), "whoever else wants it can have it"
                continue
            assert await client.prompt(session, "Are you there?") == "end_turn"
            assert client.said(session).endswith(f"answer {answers}"), "the client goes on hearing of it"
            answers += 1
            if not is_open:
                await client.request("session/close", sessionId=session)
        assert outcomes == {0, CANCELLED}


async def test_a_session_is_closed_and_loaded_one_after_the_other_and_never_both(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", text("Yes."))
    where: dict[str, Any] = {"cwd": str(tmp_path), "mcpServers": []}
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        asked = [
            client.start("session/close", sessionId=session),
            client.start_prompt(session, "Too late."),
            client.start("session/load", sessionId=session, **where),
            client.start("session/close", sessionId=session),
            client.start("session/load", sessionId=session, **where),
            client.start("session/load", sessionId=session, **where),
        ]
        assert [await _outcome(client, id) for id in asked] == [0, NOT_FOUND, 0, 0, 0, 0]
        assert await client.prompt(session, "Are you there?") == "end_turn"
        assert client.said(session) == "Yes."


@pytest.mark.exploration
async def test_a_long_history_does_not_pile_up_and_a_child_is_no_session_to_load(tmp_path: Path) -> None:
    model = ScriptedModel()
    many = [calls(call("glob", pattern="*.md")) for _ in range(60)]
    here: dict[str, Any] = {"run_in_background": False}
    model.script("", *many, calls(call("subagent", description="C", prompt="P", **here)), text("Done."))
    model.script("C", text("7"))
    async with stock(model, tmp_path) as app:
        async with connected(app) as client:
            session = await client.new(tmp_path)
            await client.prompt(session, "Look again and again.")
            live = client.of(session, "tool_call")
        async with connected(app) as client:
            where = {"cwd": str(tmp_path), "mcpServers": []}
            await client.request("session/load", sessionId=session, **where)
            assert client.of(session, "tool_call") == live
            (child,) = await app.host.sessions.store.children(session)
            error = await _fails(client, "session/load", sessionId=child.header.id, **where)
            assert error.code == INVALID_PARAMS


async def test_usage_says_how_full_the_context_is(tmp_path: Path) -> None:
    model = ScriptedModel(context_window=1000)
    model.script("", text("Yes."))
    async with stock(model, tmp_path) as app, connected(app) as client:
        session = await client.new(tmp_path)
        await client.prompt(session, "Well?")
        (usage,) = client.of(session, "usage_update")
        assert usage["size"] == 1000
        assert 0 < usage["used"] < 1000


async def test_a_session_that_another_process_drives_is_no_session_here(tmp_path: Path) -> None:
    async with stock(ScriptedModel(), tmp_path) as theirs:
        agent = await theirs.agent()
        async with stock(ScriptedModel(), tmp_path) as ours, connected(ours) as client:
            with anyio.fail_after(10):
                error = await _fails(client, "session/load", sessionId=agent.id, cwd=str(tmp_path), mcpServers=[])
            assert error.data == {"code": "SESSION_HELD"}
            assert client.updates == [], "nothing is told of it"
