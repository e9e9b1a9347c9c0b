"""`retinue acp` as an editor starts it: a process with three streams."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from retinue.session.events import TurnEnd
from tests.acp.editor import editor as _editor
from tests.support.command import KEY, Place
from tests.support.scripted_server import scripted_server
from tests.support.scripts import calls, delegate, says, session


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    place = Place(tmp_path, None, {"OPENAI_API_KEY": KEY})
    yield place
    place.clear()


def test_a_session_from_the_first_frame_to_the_end_of_the_process(place: Place) -> None:
    noise = {"tool": "bash", "args": {"command": "echo to stdout; echo to stderr >&2"}}
    with (
        scripted_server(session("root", "ROOT", calls(noise), says("done"))) as server,
        _editor(place, server) as editor,
    ):
        id = editor.open(place.folder)
        assert editor.answer(editor.start_prompt(id, "ROOT"))["result"] == {"stopReason": "end_turn"}
        code, err = editor.leave()
        server.check()
    assert (code, err) == (0, "")
    assert KEY not in str(editor.frames)
    place.check()


def test_nothing_that_a_client_sends_ends_the_process(place: Place) -> None:
    with scripted_server() as server, _editor(place, server) as editor:
        for line in (b"[]", b"{", b'{"jsonrpc":"2.0","id":[],"method":"initialize"}', b"\xff" * 300, b"[" * 100_000):
            editor.give(line + b"\n")
        editor.give(b'{"jsonrpc":"2.0","id":"x","method":"session/new","params":{"cwd":"/","mcpServers":[]}}\n')
        id = editor.open(place.folder)
        for method in (
            "session/new",
            "session/load",
            "session/prompt",
            "session/cancel",
            "session/set_mode",
            "shutdown",
        ):
            for params in ([], 7, None, {}, {"sessionId": 7}, {"sessionId": id}):
                frame = {"jsonrpc": "2.0", "id": f"{method} {params}", "method": method, "params": params}
                editor.give(json.dumps(frame).encode() + b"\n")
                answer = editor.wait(lambda f, wanted=frame["id"]: f.get("id") == wanted)
                assert "error" in answer
        editor.give(b'{"jsonrpc":')
        assert editor.leave()[0] == 0


def test_without_a_key_a_client_is_told_and_may_try_again(place: Place) -> None:
    place.variables.pop("OPENAI_API_KEY")
    with _editor(place, None, "--model", "deepseek:deepseek-chat") as editor:
        began = editor.request("initialize", protocolVersion=99)["result"]
        assert began["protocolVersion"] == 1
        (method,) = began["authMethods"]
        where = {"cwd": str(place.folder), "mcpServers": []}
        assert editor.request("session/new", **where)["error"]["code"] == -32000
        assert editor.request("authenticate", methodId=method["id"])["error"]["code"] == -32000
        assert editor.request("authenticate", methodId="magic")["error"]["code"] == -32602
        (place.folder / ".env").write_text(f"DEEPSEEK_API_KEY={KEY}\n")
        assert editor.request("authenticate", methodId=method["id"])["result"] == {}
        assert "sessionId" in editor.request("session/new", **where)["result"]
        assert editor.leave()[0] == 0
    with _editor(place, None, "--model", "deepseek:deepseek-chat") as editor:
        assert editor.request("initialize", protocolVersion=1)["result"]["authMethods"] == []


def test_sessions_are_listed_also_without_a_model(place: Place) -> None:
    without = {**place.variables, "RETINUE_MODEL": ""}
    without.pop("OPENAI_API_KEY")
    bare = replace(place, variables=without)
    with _editor(bare, None) as editor:
        editor.request("initialize", protocolVersion=1)
        assert editor.request("session/list")["result"] == {"sessions": []}
        assert editor.leave()[0] == 0
    assert not place.home.exists(), "listing makes nothing"
    with scripted_server() as server, _editor(place, server) as editor:
        id = editor.open(place.folder)
        assert editor.leave()[0] == 0
    with _editor(bare, None) as editor:
        editor.request("initialize", protocolVersion=1)
        (listed,) = editor.request("session/list", cwd=str(place.folder))["result"]["sessions"]
        assert (listed["sessionId"], listed["cwd"]) == (id, str(place.folder))
        assert (
            editor.request("session/load", sessionId=id, cwd=str(place.folder), mcpServers=[])["error"]["code"]
            == -32000
        )
        assert editor.leave()[0] == 0


def test_servers_of_the_editor_can_be_used_without_a_configuration(place: Place) -> None:
    program = Path(__file__).parents[1] / "plugins" / "mcp_servers" / "plain.py"
    server = {"name": "plain", "command": sys.executable, "args": [str(program)], "env": []}
    add = {"tool": "mcp__plain__add", "args": {"a": 3, "b": 4}}
    (place.folder / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "touch", "args": ["started"]}}}')
    with (
        scripted_server(session("root", "ROOT", calls(add), says("it is {{re:(7)}}"))) as model,
        _editor(place, model) as editor,
    ):
        editor.request("initialize", protocolVersion=1)
        made = editor.request("session/new", cwd=str(place.folder), mcpServers=[server])
        editor.answer(editor.start_prompt(made["result"]["sessionId"], "ROOT"))
        assert editor.leave()[0] == 0
        model.check()
    assert not (place.folder / "started").exists(), "what lies in a folder is not run for that"


def test_a_server_of_the_editor_that_prints_no_frames_does_not_fill_the_log(place: Place) -> None:
    server = {"name": "chatty", "command": "sh", "args": ["-c", "yes not a frame | head -n 2000"], "env": []}
    with scripted_server(session("root", "ROOT", says("done"))) as model, _editor(place, model) as editor:
        editor.request("initialize", protocolVersion=1)
        made = editor.request("session/new", cwd=str(place.folder), mcpServers=[server])["result"]
        assert editor.answer(editor.start_prompt(made["sessionId"], "ROOT"))["result"] == {"stopReason": "end_turn"}
        code, err = editor.leave()
    assert code == 0
    assert "chatty" in err
    assert "Traceback" not in err


def test_a_client_that_goes_ends_what_it_began_and_the_process_asks_no_more(place: Place) -> None:
    delegation = {"tool": "subagent", "args": {"description": "child", "prompt": "CHILD"}}
    scripts = (
        session("root", "ROOT", calls(delegation), says("x", hold="never")),
        session("child", "CHILD", says("x", hold="never")),
    )
    with scripted_server(*scripts) as server, _editor(place, server) as editor:
        id = editor.open(place.folder)
        editor.start_prompt(id, "ROOT")
        server.wait(lambda s: len(s.of("root")) == 2 and len(s.of("child")) == 1)
        code, err = editor.leave()
        assert (code, err) == (0, "")
        assert [len(server.of(name)) for name in ("root", "child")] == [2, 1]
    ends = [[e.data.reason for e in log if isinstance(e.data, TurnEnd)] for log, _ in place.stored().values()]
    assert ends == [["aborted"], ["aborted"]]
    place.check()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_signal_closes_nothing_and_a_loaded_session_goes_on(place: Place, number: int, code: int) -> None:
    scripts = (
        session("root", "ROOT", calls(delegate("CHILD")), says("x", hold="never"), says("{{re:(seven)}} it is")),
        session("child", "CHILD", says("x", hold="never"), says("seven")),
    )
    with scripted_server(*scripts) as server:
        with _editor(place, server) as editor:
            id = editor.open(place.folder)
            editor.start_prompt(id, "ROOT")
            server.wait(lambda s: len(s.of("child")) == 1)
            editor.process.send_signal(number)
            assert editor.process.wait(20) == code
        assert not any(isinstance(e.data, TurnEnd) for log, _ in place.stored().values() for e in log)
        with _editor(place, server) as editor:
            editor.request("initialize", protocolVersion=1)
            editor.request("session/load", sessionId=id, cwd=str(place.folder), mcpServers=[])
            server.wait(lambda s: len(s.of("root")) == 2)
    place.check(quiescent=False)


def test_start_to_initialize_is_quick_since_nothing_is_opened(place: Place) -> None:
    heavy = ("aiohttp", "apsw", "mcp", "jsonschema_rs", "rich", "retinue.plugins", "retinue.store", "retinue.host")
    program = f"import sys, retinue.cli.acp\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=place.environment())
    assert (done.stdout, done.returncode) == ("[]\n", 0)
