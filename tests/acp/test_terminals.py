"""Commands over the wire: seen while they run, in terminals of clients that have such, and as content elsewhere."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from retinue.tools.function import tool
from retinue.tools.tool import ToolContext
from tests.acp.client import SUBAGENTS, Client, connected
from tests.acp.editor import Editor, editor
from tests.acp.screen import TERMINALS, Screen
from tests.scenarios.stock import children, stock
from tests.support import scripts
from tests.support.command import KEY, Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import says, session

FULL = ("--permission", "full-access")
FREE = "plugins.permissions.preset=full-access"
UNTIL_GO = "while [ ! -e go ]; do read -t 0.02 < <(:) || :; done"


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    place = Place(tmp_path, None, {"OPENAI_API_KEY": KEY})
    yield place
    place.clear()


def _bash(command: str, **more: Any) -> dict[str, Any]:
    return scripts.calls({"tool": "bash", "args": {"command": command, **more}})


def _updates(editor: Editor) -> list[dict[str, Any]]:
    return [frame["params"]["update"] for frame in editor.frames if frame.get("method") == "session/update"]


def _until(editor: Editor, is_there: Callable[[Screen], object]) -> Screen:
    """What the editor shows once that holds of it."""
    editor.wait(lambda _: bool(is_there(Screen.of(_updates(editor)))))
    return Screen.of(_updates(editor))


def _load(editor: Editor, id: str, folder: Path, capabilities: dict[str, Any]) -> None:
    editor.request("initialize", protocolVersion=1, clientCapabilities=capabilities)
    assert "result" in editor.request("session/load", sessionId=id, cwd=str(folder), mcpServers=[])


def _open(editor: Editor, folder: Path, capabilities: dict[str, Any]) -> str:
    editor.request("initialize", protocolVersion=1, clientCapabilities=capabilities)
    return editor.request("session/new", cwd=str(folder), mcpServers=[])["result"]["sessionId"]


def test_a_command_is_seen_in_a_terminal_while_it_runs_and_again_when_the_session_is_loaded(place: Place) -> None:
    command = f"echo first; {UNTIL_GO}; echo second; exit 3"
    with scripted_server(session("root", "ROOT", _bash(command, description="wait"), says("done"))) as server:
        with editor(place, server, *FULL) as client:
            id = _open(client, place.folder, TERMINALS)
            prompt = client.start_prompt(id, "ROOT")
            screen = _until(client, lambda s: any(t.text == "first\n" for t in s.terminals.values()))
            (shown,) = screen.calls.values()
            assert (shown["kind"], shown["status"], shown["title"]) == ("execute", "in_progress", command)
            assert shown["rawInput"]["command"] == command
            assert screen.terminal(shown).exit is None
            assert screen.terminal(shown).cwd == str(place.folder)
            (place.folder / "go").touch()
            assert client.answer(prompt)["result"] == {"stopReason": "end_turn"}
            screen = Screen.of(_updates(client))
            (shown,) = screen.calls.values()
            assert shown["status"] == "completed"
            assert screen.terminal(shown).text == "first\nsecond\n"
            assert screen.terminal(shown).exit == {"exit_code": 3, "signal": None}
            assert shown["rawOutput"]["exit_code"] == 3
            assert shown["rawOutput"]["output"] == "first\nsecond\n[exit code: 3]"
            assert client.leave()[0] == 0
        with editor(place, server, *FULL) as client:
            _load(client, id, place.folder, TERMINALS)
            screen = Screen.of(_updates(client))
            (shown,) = screen.calls.values()
            assert shown["status"] == "completed"
            assert screen.terminal(shown).text == "first\nsecond\n[exit code: 3]"
            assert screen.terminal(shown).exit == {"exit_code": 3, "signal": None}
            assert client.leave()[0] == 0


def test_other_clients_see_the_end_of_the_output_as_content_and_then_the_result(place: Place) -> None:
    command = f"echo '# first'; {UNTIL_GO}; echo second; exit 3"
    with (
        scripted_server(session("root", "ROOT", _bash(command), says("done"))) as server,
        editor(place, server, *FULL) as client,
    ):
        id = _open(client, place.folder, {"terminal": True})
        prompt = client.start_prompt(id, "ROOT")
        screen = _until(client, lambda s: any("first" in str(c["content"]) for c in s.calls.values() if "content" in c))
        assert screen.terminals == {}
        (shown,) = screen.calls.values()
        assert shown["status"] == "in_progress"
        assert [part["content"]["text"] for part in shown["content"]] == ["```console\n# first\n```"]
        (place.folder / "go").touch()
        client.answer(prompt)
        (shown,) = Screen.of(_updates(client)).calls.values()
        assert shown["status"] == "completed"
        assert [part["content"]["text"] for part in shown["content"]] == [
            "```console\n# first\nsecond\n[exit code: 3]\n```"
        ]
        methods = {frame["method"] for frame in client.frames if "method" in frame}
        assert methods == {"session/update"}, "nothing is run by the client"
        assert client.leave()[0] == 0


@pytest.mark.parametrize("capabilities", [TERMINALS, {}])
def test_a_command_in_the_background_is_seen_beyond_its_call_and_its_end_is_told(
    place: Place, capabilities: dict[str, Any]
) -> None:
    command = f"echo up; {UNTIL_GO}; echo down; exit 4"
    replies = (_bash(command, run_in_background=True), says("started"), says("it ended"))

    def shows(screen: Screen, words: str) -> bool:
        return words in str(screen.terminals) + str([call.get("content") for call in screen.calls.values()])

    with scripted_server(session("root", "ROOT", *replies)) as server:
        with editor(place, server, *FULL) as client:
            id = _open(client, place.folder, capabilities)
            assert client.answer(client.start_prompt(id, "ROOT"))["result"] == {"stopReason": "end_turn"}
            screen = _until(client, lambda s: shows(s, "up"))
            (shown,) = screen.calls.values()
            assert (shown["status"], shown["rawOutput"]["task_id"]) == ("completed", "bash-1")
            assert all(terminal.exit is None for terminal in screen.terminals.values())
            (place.folder / "go").touch()
            server.wait(lambda s: len(s.of("root")) == 3)
            screen = _until(client, lambda s: shows(s, "[bash-1 failed: exit code 4]"))
            (shown,) = screen.calls.values()
            assert shows(screen, "down")
            if capabilities:
                client.wait(lambda f: "terminal_exit" in str(f))
                terminal = Screen.of(_updates(client)).terminal(shown)
                assert terminal.text == "up\ndown\n[bash-1 failed: exit code 4]\n"
                assert terminal.exit == {"exit_code": 4, "signal": None}
            client.leave()
        with editor(place, server, *FULL) as client:
            _load(client, id, place.folder, capabilities)
            screen = Screen.of(_updates(client))
            (shown,) = screen.calls.values()
            assert shown["status"] == "completed"
            assert shows(screen, "[bash-1 failed: exit code 4]")
            if capabilities:
                assert (
                    screen.terminal(shown).text
                    == "[what it said until now is not kept]\n[bash-1 failed: exit code 4]\n"
                )
                assert screen.terminal(shown).exit == {"exit_code": 4, "signal": None}
            client.leave()


@pytest.mark.parametrize("capabilities", [TERMINALS, {}])
def test_a_client_that_reads_nothing_holds_up_no_command_and_is_told_a_bounded_part(
    place: Place, capabilities: dict[str, Any]
) -> None:
    flood = "yes 'all work and no play' | head -c 5000000; echo the end"
    with (
        scripted_server(session("root", "ROOT", _bash(flood), says("done"))) as server,
        editor(place, server, *FULL) as client,
    ):
        id = _open(client, place.folder, capabilities)
        prompt = client.start_prompt(id, "ROOT")
        _wait_for(server, 2)
        client.answer(prompt)
        assert sum(len(str(frame)) for frame in client.frames) < 2_000_000
        (shown,) = Screen.of(_updates(client)).calls.values()
        assert shown["status"] == "completed"
        said = "".join(t.text for t in Screen.of(_updates(client)).terminals.values()) or str(shown["content"])
        assert "the end" in said[-60:]
        assert len(said) < 1_000_000
        assert client.leave()[0] == 0


def _wait_for(server: ScriptedServer, requests: int) -> None:
    server.wait(lambda s: len(s.of("root")) == requests)


async def _prompted(client: Client, folder: Path, prompt: str = "Run it.") -> Screen:
    id = await client.new(folder)
    await client.prompt(id, prompt)
    return Screen.of(client.of(id))


async def test_a_client_that_wants_it_under_another_key_has_it_there(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(call("bash", command="printf '\\033[31mred\\033[0m, \\303\\251\\a\n'")), text("Well."))
    key = "terminal_output_delta"
    async with stock(model, tmp_path, FREE) as app, connected(app, capabilities={"_meta": {key: True}}) as client:
        id = await client.new(tmp_path)
        await client.prompt(id, "Run it.")
        (terminal,) = Screen.of(client.of(id), key).terminals.values()
    assert terminal.text == "red, é\ufffd\n", "no sequence or character that does something"
    assert terminal.exit == {"exit_code": 0, "signal": None}


async def test_a_command_that_may_not_run_is_an_error_and_no_terminal(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(call("bash", command="echo never", timeout_s=100_000)), text("Well."))
    async with stock(model, tmp_path, FREE) as app, connected(app, capabilities=TERMINALS) as client:
        screen = await _prompted(client, tmp_path)
    (shown,) = screen.calls.values()
    assert shown["status"] == "failed"
    assert "at most 600" in shown["content"][0]["content"]["text"]
    (terminal,) = screen.terminals.values()
    assert (terminal.text, terminal.exit) == ("", {"exit_code": None, "signal": None})


async def test_a_command_that_is_cut_off_keeps_what_it_said(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("", calls(call("bash", command="echo begun; sleep 300")), text("never"))
    async with stock(model, tmp_path, FREE, at_rest=False) as app, connected(app, capabilities=TERMINALS) as client:
        id = await client.new(tmp_path)
        prompt = client.start_prompt(id, "Run it.")
        await client.wait(lambda: any(t.text for t in Screen.of(client.of(id)).terminals.values()))
        client.notify("session/cancel", sessionId=id)
        assert (await client.answer(prompt))["stopReason"] == "cancelled"
        screen = Screen.of(client.of(id))
    (shown,) = screen.calls.values()
    assert shown["status"] == "failed"
    assert screen.terminal(shown).text == "begun\n[Error: the turn was aborted while this call ran]\n"
    assert screen.terminal(shown).exit == {"exit_code": None, "signal": None}


async def test_a_session_that_is_loaded_while_a_command_runs_in_the_background_goes_on_showing_it(
    tmp_path: Path,
) -> None:
    command = f"echo up; {UNTIL_GO}; echo down"
    model = ScriptedModel()
    model.script("", calls(call("bash", command=command, run_in_background=True)), text("Started."), text("Ended."))
    async with stock(model, tmp_path, FREE) as app, connected(app, capabilities=TERMINALS) as client:
        id = await client.new(tmp_path)
        await client.prompt(id, "Run it.")
        await client.wait(lambda: any(t.text for t in Screen.of(client.of(id)).terminals.values()))
        client.updates.clear()
        await client.request("session/load", sessionId=id, cwd=str(tmp_path), mcpServers=[])
        (tmp_path / "go").touch()
        await client.wait(lambda: any(t.exit for t in Screen.of(client.of(id)).terminals.values()))
        screen = Screen.of(client.of(id))
    (shown,) = screen.calls.values()
    words = "[what it said until now is not kept]\ndown\n[bash-1 completed: exit code 0]\n"
    assert screen.terminal(shown).text == words
    assert screen.terminal(shown).exit == {"exit_code": 0, "signal": None}


async def test_a_tool_of_your_own_shows_what_it_is_at(tmp_path: Path) -> None:
    gate = Gate()

    @tool
    async def bake(ctx: ToolContext) -> str:
        """Bake a loaf."""
        assert ctx.tell is not None
        ctx.tell("kneading\n")
        ctx.tell("`baking`\n")
        await gate.wait()
        return "a loaf"

    model = ScriptedModel()
    model.script("", calls(call("bake")), text("Eat."))
    async with stock(model, tmp_path, tools=[bake]) as app, connected(app, capabilities=TERMINALS) as client:
        id = await client.new(tmp_path)
        prompt = client.start_prompt(id, "Bake.")
        await client.wait(lambda: "baking" in str(client.of(id)))
        (shown,) = Screen.of(client.of(id)).calls.values()
        assert shown["content"][0]["content"]["text"] == "```console\nkneading\n`baking`\n```"
        gate.open()
        await client.answer(prompt)
        screen = Screen.of(client.of(id))
    (shown,) = screen.calls.values()
    assert shown["content"][0]["content"]["text"] == "a loaf"
    assert screen.terminals == {}


async def test_a_time_limit_and_a_signal_are_told(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script(
        "",
        calls(call("bash", command="printf begun; sleep 300", timeout_s=0.3)),
        calls(call("bash", command="kill -SEGV $$")),
        text("Well."),
    )
    async with stock(model, tmp_path, FREE) as app, connected(app, capabilities=TERMINALS) as client:
        screen = await _prompted(client, tmp_path)
    late, killed = screen.calls.values()
    assert late["status"] == "failed"
    assert screen.terminal(late).text == "begun\n[stopped after 0.3 s]\n"
    assert screen.terminal(late).exit == {"exit_code": None, "signal": "SIGTERM"}
    assert screen.terminal(killed).exit == {"exit_code": None, "signal": "SIGSEGV"}
    assert "[ended by signal SIGSEGV]" in killed["rawOutput"]["output"]


@pytest.mark.parametrize("shows_children", [True, False])
async def test_the_commands_of_a_child_are_seen_in_its_session_or_not_at_all(
    tmp_path: Path, shows_children: bool
) -> None:
    model = ScriptedModel()
    delegation = call("subagent", description="C", prompt="P", run_in_background=False)
    model.script("", calls(call("bash", command="echo mine"), delegation), text("Done."))
    model.script("C", calls(call("bash", command="echo theirs")), text("Ran."))
    capabilities = {**TERMINALS, **(SUBAGENTS if shows_children else {})}
    async with stock(model, tmp_path, FREE) as app, connected(app, capabilities=capabilities) as client:
        id = await client.new(tmp_path)
        await client.prompt(id, "Run it.")
        (child,) = await children(app, id)
        (own,) = Screen.of(client.of(id)).terminals.items()
        other = Screen.of(client.of(child)).terminals
    assert own[1].text == "mine\n"
    assert [shown.text for shown in other.values()] == (["theirs\n"] if shows_children else [])
    assert own[0] not in other, "a client may keep all terminals in one place"


async def test_a_question_about_a_command_shows_all_of_it_and_its_terminal_comes_back(tmp_path: Path) -> None:
    command = f"echo {'a' * 200}; echo last"
    model = ScriptedModel()
    model.script("", calls(call("bash", command=command, description="say hello")), text("Done."))
    ask = 'plugins.permissions.rules={ask: ["bash"]}'
    async with stock(model, tmp_path, FREE, ask) as app, connected(app, capabilities=TERMINALS) as client:
        id = await client.new(tmp_path)
        prompt = client.start_prompt(id, "Run it.")
        await client.wait(lambda: client.asked)
        asked = client.asked[0]["params"]["toolCall"]
        assert asked["title"].endswith("…")
        assert [part["content"]["text"] for part in asked["content"]] == [f"```console\n{command}\n```", "say hello"]
        client.give(
            {
                "jsonrpc": "2.0",
                "id": client.asked[0]["id"],
                "result": {"outcome": {"outcome": "selected", "optionId": "allow"}},
            }
        )
        await client.answer(prompt)
        updates = client.of(id)
        at = next(i for i, u in enumerate(updates) if u["sessionUpdate"] == "tool_call")
        screen = Screen.of([*updates[: at + 1], {"sessionUpdate": "tool_call_update", **asked}, *updates[at + 1 :]])
    (shown,) = screen.calls.values()
    assert screen.terminal(shown).text.endswith("last\n")
