"""`retinue mcp` and a host made with the official SDK, over real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.command import Place
from tests.support.mcp_host import mcp_host
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import says, session

At = Callable[[ScriptedServer], Place]


async def asked(server: ScriptedServer, **counts: int) -> None:
    """Each named session has made that many requests."""
    await to_thread.run_sync(lambda: server.wait_requests(**counts))


async def in_order(place: Place) -> None:
    """Every log of the home keeps the rules."""
    await to_thread.run_sync(lambda: place.check(quiescent=False))


async def test_a_host_starts_an_agent_and_reads_its_settlement(at: At) -> None:
    with scripted_server(session("one", "ONE", says("first"))) as server:
        place = at(server)
        async with mcp_host(place) as host:
            tools = {tool.name: tool.annotations for tool in (await host.client.list_tools()).tools}
            reading = {name for name, hints in tools.items() if hints is not None and hints.read_only_hint}
            assert reading == {"wait_agent", "read_notices", "list_agents", "last_words"}
            assert "start_agent" in tools
            started = await host.call("start_agent", prompt="ONE: look", label="a look")
            ended = await host.call("wait_agent", **started)
            assert (ended["outcome"], ended["text"]) == ("completed", "first")
            assert len((await host.call("read_notices", timeout_s=10))["notices"]) == 1
            assert "SESSION_NOT_FOUND" in await host.failure("wait_agent", agent_id="agent-none")
            assert "BAD_INPUT" in await host.failure("start_agent", label="x")
        server.check()
    await in_order(place)


@pytest.mark.exploration
async def test_a_host_starts_sends_and_reads_settlements_across_a_kill(at: At) -> None:
    script = session("one", "ONE", says("never", hold="never"), says("first"), says("second"))
    with scripted_server(script) as server:
        place = at(server)
        async with mcp_host(place) as host:
            started = await host.call("start_agent", prompt="ONE: look", label="a look", key="k")
            await asked(server, one=1)
            looked = await host.call("wait_agent", **started, timeout_s=0)
            assert (looked["state"], looked["outcome"]) == ("working", None)
            host.kill()
        async with mcp_host(place) as host:
            assert await host.call("start_agent", prompt="ONE: look", label="a look", key="k") == started
            ended = await host.call("wait_agent", **started)
            assert (ended["outcome"], ended["text"], ended["settlements"]) == ("completed", "first", 1)
            read = await host.call("read_notices", timeout_s=10)
            assert [(n["agent_id"], n["kind"]) for n in read["notices"]] == [(started["agent_id"], "settlement")]
            sent = await host.call("send_message", **started, message="go on", key="m")
            assert await host.call("send_message", **started, message="go on", key="m") == sent
            assert (await host.call("wait_agent", **started))["text"] == "second"
            host.kill()
        async with mcp_host(place) as host:
            more = await host.call("read_notices", since=read["next"], timeout_s=10)
            assert len(more["notices"]) == 1
            assert "second" in more["notices"][0]["text"]
            (listed,) = (await host.call("list_agents"))["agents"]
            assert (listed["state"], listed["settlements"]) == ("ended", 2)
            assert "ID_CONFLICT" in await host.failure("start_agent", prompt="else", label="x", key="k")
        server.check()
    await in_order(place)


@pytest.mark.exploration
async def test_two_hosts_share_the_agents_of_a_folder_and_one_takes_up_what_the_other_leaves(at: At) -> None:
    one = session("one", "ONE", says("first", hold="go"), says("second", hold="gone"), says("third"))
    with scripted_server(one) as server:
        place = at(server)
        async with mcp_host(place) as other:
            async with mcp_host(place) as host:
                started = await host.call("start_agent", prompt="ONE: look", label="a look")
                assert await other.call("list_agents") == await host.call("list_agents")
                await other.call("send_message", **started, message="go on")
                server.open("go")
                await asked(server, one=2)
                assert (await other.call("wait_agent", **started, timeout_s=1))["state"] == "working"
                host.kill()
            ended = await other.call("wait_agent", **started)
            assert (ended["outcome"], ended["text"]) == ("completed", "third")
            assert len((await other.call("read_notices", timeout_s=10))["notices"]) == 1
        server.check()
    await in_order(place)


@pytest.mark.exploration
async def test_hosts_that_begin_at_once_with_one_key_have_one_agent(at: At) -> None:
    with scripted_server(session("one", "ONE", says("done"))) as server:
        place = at(server)
        ids: list[str] = []

        async def begin() -> None:
            async with mcp_host(place) as host:
                started = await host.call("start_agent", prompt="ONE: look", label="a look", key="k")
                ids.append((await host.call("wait_agent", **started))["agent_id"])
                assert len((await host.call("read_notices", timeout_s=10))["notices"]) == 1

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(begin)
        assert (len(ids), len(set(ids))) == (4, 1)
        server.check()
    await in_order(place)


@pytest.mark.exploration
async def test_ten_agents_work_at_once_and_each_settles_once(at: At) -> None:
    names = [f"N{number}-" for number in range(10)]
    with scripted_server(*(session(name, name, says(f"done {name}", hold="go")) for name in names)) as server:
        place = at(server)
        async with mcp_host(place) as host:
            ids: dict[str, str] = {}

            async def start(name: str) -> None:
                ids[name] = (await host.call("start_agent", prompt=f"{name} look", label=name))["agent_id"]

            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(start, name)
            await asked(server, **dict.fromkeys(names, 1))
            server.open("go")

            async def wait(name: str) -> None:
                assert (await host.call("wait_agent", agent_id=ids[name]))["text"] == f"done {name}"

            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(wait, name)
            notices = (await host.call("read_notices", timeout_s=10))["notices"]
            assert sorted(n["agent_id"] for n in notices) == sorted(ids.values())
        server.check()
    await in_order(place)


@pytest.mark.exploration
async def test_a_host_that_waits_is_told_that_it_waits_and_may_give_up(at: At) -> None:
    with scripted_server(session("one", "ONE", says("late", hold="go"))) as server:
        place = at(server)
        async with mcp_host(place) as host:
            started = await host.call("start_agent", prompt="ONE: look", label="a look")
            with anyio.move_on_after(6):
                await host.call("wait_agent", **started, timeout_s=600)
            assert host.progress == [5.0]
            server.open("go")
            assert (await host.call("wait_agent", **started))["text"] == "late"
    await in_order(place)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_server_although_its_host_stays(place: Place, number: int, code: int) -> None:
    options = ("--model", "openai-compatible:x", "--base-url", "http://127.0.0.1:9/v1")
    running = place.start("mcp", *options, stdin=subprocess.PIPE)
    process = running.process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write('not a frame\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    process.stdin.flush()
    while '"id":1' not in process.stdout.readline():
        assert process.poll() is None
    running.signal(number)
    assert process.wait(20) == code  # while stdin is still open
    running.done()


@pytest.mark.exploration
@pytest.mark.parametrize("how", ["closes", "signals"])
def test_a_host_that_reads_nothing_cannot_keep_the_server(place: Place, how: str) -> None:
    options = ("--model", "openai-compatible:x", "--base-url", "http://127.0.0.1:9/v1")
    running = place.start("mcp", *options, stdin=subprocess.PIPE)
    process = running.process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": "x" * 1_000_000, "method": "ping"}) + "\n")
    process.stdin.flush()
    assert process.stdout.read(1) == "{"  # a pipe full of the rest follows
    if how == "closes":
        process.stdin.close()
    else:
        running.signal(signal.SIGTERM)
    with process:  # which closes what is left of its streams
        assert process.wait(20) == (0 if how == "closes" else 143)


def test_without_the_sdk_the_command_says_what_to_install(place: Place, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "mcp_types.py").write_text("raise ImportError('not here')\n")
    place.variables["PYTHONPATH"] = str(hidden)
    done = place.retinue("mcp", "--model", "ollama:x")
    assert (done.code, done.out) == (2, "")
    assert "pip install -e '.[mcp]'" in done.err
