"""MCP servers as real processes: their tools work, and what a server does wrong costs that server alone."""

import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import retinue
from retinue.compose.app import App
from retinue.errors import ConfigError, ToolFailure
from retinue.model.content import text_of
from retinue.plugins.mcp.servers import ServerConfig, read_servers, resolved
from retinue.plugins.mcp.tools import tool_names
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from retinue.tools.tool import CallKey, ToolContext, ToolResult

SERVERS = Path(__file__).with_name("mcp_servers")


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def program(name: str, *args: str, **options: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / f"{name}.py"), *args], **options}


@asynccontextmanager
async def running(
    tmp_path: Path, servers: dict[str, Any], *, model: ScriptedModel | None = None, **options: Any
) -> AsyncGenerator[App]:
    settings = ["plugins.mcp={}", *(f"plugins.mcp.{key}={value}" for key, value in options.pop("mcp", {}).items())]
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    async with retinue.open(
        "scripted:m",
        client=model or ScriptedModel(),
        cwd=project,
        home=tmp_path / "home",
        settings=settings,
        **{"environ": {}, **options},
    ) as app:
        yield app


async def ask(app: App, name: str, /, **arguments: Any) -> ToolResult:
    """The tool's answer, once an agent is set up, which is when servers are there."""
    agent = await app.agent()
    found = agent.tools.get(name)
    assert found is not None, sorted(agent.tools.view)
    key = CallKey(session_id=agent.id, seq=0, index=0)
    context = ToolContext(caller=agent, key=key, name=name, call_id="c", turn=1, step=1)
    try:
        return await found.body(context, arguments)
    except ToolFailure as failure:
        return ToolResult.error(failure.name, str(failure))


async def until(holds: Callable[[], bool]) -> None:
    """What another process does has happened."""
    with anyio.fail_after(20):
        while True:
            if holds():
                return
            await anyio.sleep(0.01)


def words(result: ToolResult) -> str:
    return text_of(result.content)


async def test_a_model_calls_a_tool_of_a_server(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("mcp__plain__add", a=2, b=3)), text("five"))
    async with running(tmp_path, {"plain": program("plain")}, model=model) as app:
        result = await (await app.run("Add.")).result()
    assert result.output == "five"
    spec = next(tool for tool in model.requests()[0].tools if tool.name == "mcp__plain__add")
    assert spec.description == "Adds two numbers."
    assert set(spec.parameters["properties"]) == {"a", "b"}  # type: ignore[arg-type]
    assert model.requests()[1].results == ("5",)
    model.check()


async def test_a_servers_failure_is_a_result_and_wrong_arguments_never_reach_it(tmp_path: Path) -> None:
    async with running(tmp_path, {"plain": program("plain")}) as app:
        failed = await ask(app, "mcp__plain__fail", why="no reason")
        with pytest.raises(ToolFailure, match="'two'|two"):
            app.host.tools.view["mcp__plain__add"].validate({"a": "two", "b": 1})
    assert (failed.is_error, failed.code) == (True, "SERVER_ERROR")
    assert "no reason" in words(failed)


async def test_a_server_sees_what_is_named_for_it_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"OPENAI_API_KEY": "sk-0123456789", "MY_TOKEN": "token-for-it"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    server = program("plain", env={"GIVEN": "${MY_TOKEN}", "OTHER": "${UNSET_ONE:-fallback}"})
    async with running(tmp_path, {"plain": server}, environ=environ) as app:
        seen = [
            words(await ask(app, "mcp__plain__variable", name=name))
            for name in ("GIVEN", "OTHER", "OPENAI_API_KEY", "MY_TOKEN")
        ]
    assert seen == ["token-for-it", "fallback", "(none)", "(none)"]


async def test_resources_are_listed_and_read(tmp_path: Path) -> None:
    async with running(tmp_path, {"plain": program("plain")}) as app:
        listed = words(await ask(app, "mcp_resources"))
        read = words(await ask(app, "mcp_read", server="plain", uri="notes://first"))
        unknown = await ask(app, "mcp_read", server="nobody", uri="notes://first")
    assert listed == "plain notes://first (text/plain) — first The first note."
    assert read == "remember the milk"
    assert unknown.code == "NOT_FOUND"


async def test_a_dead_server_is_said_without_secrets_and_started_again(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    server = program("plain", str(starts), env={"TOKEN": "secret-token-1"})
    async with running(tmp_path, {"plain": server, "other": program("plain")}) as app:
        died = await ask(app, "mcp__plain__die")
        assert words(await ask(app, "mcp__other__add", a=1, b=1)) == "2"
        with anyio.fail_after(20):
            while (again := await ask(app, "mcp__plain__add", a=1, b=2)).is_error:
                assert again.code == "SERVER_AWAY"
                await anyio.sleep(0.05)
    assert died.code == "SERVER_AWAY"
    assert "dying of [secret]" in words(died)
    assert words(again) == "3"
    assert starts.read_text() == "started\n" * 2


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with running(tmp_path, {"plain": program("plain")}) as app:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await until(mark.exists)
                    scope.cancel()

                group.start_soon(cancel)
                await ask(app, "mcp__plain__wait", mark=str(mark))
        await until(lambda: mark.read_text() == "cancelled")
        assert words(await ask(app, "mcp__plain__add", a=1, b=2)) == "3"


async def test_a_call_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    server = program("plain", timeout_s=0.5)
    async with running(tmp_path, {"plain": server}) as app:
        result = await ask(app, "mcp__plain__wait", mark=str(tmp_path / "mark"))
        assert words(await ask(app, "mcp__plain__add", a=1, b=2)) == "3"
    assert result.code == "TIMEOUT"


@pytest.mark.exploration
async def test_a_silent_server_delays_the_first_request_for_a_while_and_once(tmp_path: Path) -> None:
    servers = {"silent": program("rude", "silent"), "plain": program("plain")}
    async with running(tmp_path, servers, mcp={"start_wait_s": 0.1}) as app:
        with anyio.fail_after(20):
            await app.agent()
        await until(lambda: "mcp__plain__add" in app.host.tools.view)
        assert words(await ask(app, "mcp__plain__add", a=1, b=2)) == "3"
        assert not [name for name in app.host.tools.view if name.startswith("mcp__silent")]


async def test_tools_that_come_later_are_offered_from_then_on(tmp_path: Path) -> None:
    async with running(tmp_path, {"plain": program("plain")}) as app:
        before = (await app.agent()).tools.specs()
        assert words(await ask(app, "mcp__plain__grow")) == ""
        await until(lambda: "mcp__plain__grown" in app.host.tools.view)
        after = app.host.tools.specs()
    assert [spec.name for spec in after if spec not in before] == ["mcp__plain__grown"]


async def test_what_the_block_raises_reaches_the_caller_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with running(tmp_path, {"plain": program("plain")}):
            raise LookupError("mine")


@pytest.mark.exploration
async def test_servers_of_the_official_sdk_over_both_transports(tmp_path: Path, free_port: int) -> None:
    serving = [sys.executable, str(SERVERS / "official.py"), str(free_port)]
    async with await anyio.open_process(serving, stdout=None, stderr=subprocess.DEVNULL) as process:
        try:
            servers = {"near": program("official"), "far": {"url": f"http://127.0.0.1:{free_port}/mcp"}}
            async with running(tmp_path, servers, mcp={"start_wait_s": 60}) as app:
                await until(lambda: {"mcp__near__add", "mcp__far__add"} <= set(app.host.tools.view))
                assert words(await ask(app, "mcp__near__add", a=1, b=2)) == "3"
                assert words(await ask(app, "mcp__far__add", a=2, b=2)) == "4"
                assert words(await ask(app, "mcp_read", server="far", uri="notes://first")) == "remember the milk"
        finally:
            process.kill()


async def test_a_program_that_is_not_there_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "retinue"):
        async with running(tmp_path, {"gone": {"command": "/nowhere/x"}, "plain": program("plain")}) as app:
            assert words(await ask(app, "mcp__plain__add", a=1, b=2)) == "3"
    assert "MCP server gone is away (there is no program '/nowhere/x'; install it" in caplog.text


async def test_a_liar_is_held_to_what_can_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "retinue"):
        async with running(tmp_path, {"liar": program("rude", "liar")}) as app:
            answer = await ask(app, "mcp__liar__good")
            offered = {name: tool for name, tool in app.host.tools.view.items() if name.startswith("mcp__")}
    assert answer.code == "SERVER_ERROR"
    assert len(offered) == 5
    assert all(len(name) <= 64 for name in offered)
    assert len(offered["mcp__liar__long"].spec.description) <= 4000
    assert "bad schema" in caplog.text
    assert "huge" in caplog.text


async def test_what_a_server_says_about_its_tools_holds_no_secret_either(tmp_path: Path) -> None:
    server = program("rude", "teller", env={"TOKEN": "secret-token-1"})
    async with running(tmp_path, {"teller": server}) as app:
        await app.agent()
        spec = app.host.tools.view["mcp__teller__tell"].spec
    assert spec.description == "Uses [secret]."
    assert "secret-token-1" not in str(spec.parameters)


async def test_a_tool_that_is_none_costs_itself_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "retinue"):
        async with running(tmp_path, {"s": program("rude", "schemas")}) as app:
            assert words(await ask(app, "mcp__s__good")) == "ok"
            assert {name for name in app.host.tools.view if name.startswith("mcp__")} == {
                "mcp__s__good",
                "mcp__s__half",
            }
    for name in ("array", "none", "truth", "output", "no tool at all"):
        assert f"tool {name} of MCP server s is left out" in caplog.text


async def test_a_server_that_refuses_is_not_lost(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": program("rude", "refuser")}) as app:
        answers = [await ask(app, "mcp__s__good") for _ in range(2)]
    assert [(answer.code, "not today" in words(answer)) for answer in answers] == [("SERVER_ERROR", True)] * 2


async def test_half_a_character_in_an_answer_is_mended(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": program("rude", "halves")}) as app:
        assert words(await ask(app, "mcp__s__good")) == "cut \N{REPLACEMENT CHARACTER}"


async def test_an_answer_that_is_none_ends_the_call(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": program("rude", "mumbler")}) as app:
        answer = await ask(app, "mcp__s__good")
    assert answer.code == "SERVER_ERROR"
    assert "not what the protocol allows" in words(answer)


async def test_what_a_server_says_before_it_quits_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "retinue"):
        async with running(tmp_path, {"s": program("rude", "quitter", env={"TOKEN": "secret-token-1"})}) as app:
            await app.agent()
    assert "s cannot be reached" in caplog.text
    assert "it said: no licence for [secret]" in caplog.text


async def test_noise_on_both_streams_is_read_away(tmp_path: Path) -> None:
    async with running(tmp_path, {"noise": program("rude", "noise")}) as app:
        assert words(await ask(app, "mcp__noise__good")) == "ok"


async def test_a_flood_of_tools_is_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, {"many": program("rude", "many")}) as app:
        await app.agent()
        assert len([name for name in app.host.tools.view if name.startswith("mcp__")]) == 200


async def test_tools_can_be_chosen_and_denied(tmp_path: Path) -> None:
    server = program("plain", tools=["add", "fail"], deny_tools=["fail"])
    async with running(tmp_path, {"plain": server}) as app:
        await app.agent()
        assert [name for name in app.host.tools.view if name.startswith("mcp__")] == ["mcp__plain__add"]


async def test_read_only_agents_call_only_what_the_configuration_calls_reading(tmp_path: Path) -> None:
    server = program("plain", read_only=["add"])
    async with running(tmp_path, {"plain": server}, permission="read-only") as app:
        assert words(await ask(app, "mcp__plain__add", a=1, b=2)) == "3"
        refused = await ask(app, "mcp__plain__variable", name="HOME")
    assert refused.code == "PERMISSION_DENIED"


async def test_nothing_is_left_running(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with running(tmp_path, {"plain": program("plain", str(starts))}) as app:
        await app.agent()
        assert str(starts) in _processes()
    assert str(starts) not in _processes()


def _processes() -> str:
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(found)


def test_names_cannot_collide_and_do_not_depend_on_neighbours() -> None:
    names = tool_names("s", ["a.b", "a/b", "plain", "x" * 80])
    assert names["plain"] == "mcp__s__plain"
    assert len(set(names.values())) == 4
    assert all(len(name) <= 64 for name in names.values())
    assert tool_names("s", ["x" * 80])["x" * 80] == names["x" * 80]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({}, "either a command or a url"),
        ({"command": "x", "url": "http://x"}, "either a command or a url"),
        ({"url": "ftp://x"}, "http://"),
        ({"type": "sse", "url": "http://x"}, "sse"),
        ({"type": "http", "command": "x"}, "does not fit"),
        ({"command": "x", "env": {"A": "${NOT_SET}"}}, "NOT_SET"),
        ({"command": "x", "timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(server: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        resolved("mine", ServerConfig(**server), {})
    assert "'mine'" in str(caught.value)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {"a": {"commando": "x"}}}')
    with pytest.raises(ConfigError, match="commando") as caught:
        read_servers(path)
    assert str(path) in str(caught.value)
    assert read_servers(tmp_path / "none.json") == {}
