"""The protocol's own Python SDK as the client: what we believe of the protocol is what others believe."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, ClientCapabilities, RequestPermissionResponse
from anyio import to_thread

from tests.support.command import KEY, Place
from tests.support.scripted_server import scripted_server
from tests.support.scripts import calls, says, session


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    place = Place(tmp_path, None, {"OPENAI_API_KEY": KEY})
    yield place
    place.clear()


class Listener:
    """A client in the SDK's sense, which keeps what it is told."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[str] = []
        self._changed = anyio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self._changed.set()
        self._changed = anyio.Event()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append(tool_call.title)
        chosen = next(option.option_id for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == kind)


def test_the_sdk_goes_through_a_session_cancels_and_loads_it_again(place: Place) -> None:
    anyio.run(_go_through, place)
    place.check()


async def _go_through(place: Place) -> None:
    listing = {"tool": "glob", "args": {"pattern": "*.boat"}}
    note = {"tool": "write", "args": {"path": "note.txt", "content": "two"}}
    run = {"tool": "bash", "args": {"command": "cat note.txt; exit 3"}}
    replies = (calls(listing, note), calls(run), says("two boats"), says("x", hold="never"), says("still here"))
    with scripted_server(session("root", "ROOT", *replies)) as server:
        rules = 'plugins.permissions.rules={ask: ["write"]}'
        model = ["--model", "openai-compatible:scripted", "--base-url", server.url]
        arguments = ["-m", "retinue", "acp", *model, "--set", rules, "--set", "plugins.permissions.preset=full-access"]

        def started(client: Any) -> Any:
            return spawn_agent_process(
                client,
                sys.executable,
                *arguments,
                env=place.environment(),
                cwd=place.folder,
                use_unstable_protocol=True,
            )

        with anyio.fail_after(50):
            async with started(client := Listener()) as (agent, _):
                shows_terminals = ClientCapabilities(field_meta={"terminal_output": True})
                began = await agent.initialize(PROTOCOL_VERSION, shows_terminals)
                assert began.agent_capabilities.load_session
                made = await agent.new_session(str(place.folder), mcp_servers=[])
                id = made.session_id
                assert made.modes.current_mode_id == "full-access"
                assert (await agent.prompt(id, [text_block("ROOT: what is there?")])).stop_reason == "end_turn"
                assert client.said() == "two boats"
                assert [u.title for u in client.updates if u.session_update == "tool_call"] == [
                    "glob: *.boat",
                    "write: note.txt",
                    "cat note.txt; exit 3",
                ]
                terminals = [u.field_meta for u in client.updates if getattr(u, "field_meta", None)]
                assert [key for meta in terminals for key in meta] == [
                    "terminal_info",
                    "terminal_output",
                    "terminal_exit",
                ]
                assert terminals[1]["terminal_output"]["data"] == "two"
                assert terminals[2]["terminal_exit"]["exit_code"] == 3
                assert client.asked == ["write: note.txt"]
                assert (place.folder / "note.txt").read_text() == "two"
                await agent.set_session_mode(id, "read-only")

                async def stop() -> None:
                    await to_thread.run_sync(server.wait, lambda s: len(s.of("root")) == 4)
                    await agent.cancel(id)

                async with anyio.create_task_group() as group:
                    group.start_soon(stop)
                    assert (await agent.prompt(id, [text_block("Wait.")])).stop_reason == "cancelled"
                with pytest.raises(RequestError):
                    await agent.prompt(id, [])
                assert [info.session_id for info in (await agent.list_sessions()).sessions] == [id]
                await agent.close_session(id)
            async with started(client := Listener()) as (agent, process):
                await agent.initialize(PROTOCOL_VERSION, ClientCapabilities())
                loaded = await agent.load_session(str(place.folder), id, mcp_servers=[])
                assert loaded.modes.current_mode_id == "read-only"
                assert client.said() == "two boats"
                assert client.said("user_message_chunk") == "ROOT: what is there?Wait."
                assert (await agent.prompt(id, [text_block("There?")])).stop_reason == "end_turn"
                assert client.said() == "two boatsstill here"
            assert process.returncode == 0
        server.check()
