"""A small agent on the Python SDK of the Agent Client Protocol: what we speak is read by somebody else's code.

It repeats what it is told, asks permission first, and waits where it is told to. ACP_STATE is the folder of its
sessions.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, run_agent, update_agent_message_text
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)

STATE = Path(os.environ["ACP_STATE"])


class Parrot:
    """One connection."""

    client: Client

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION, agent_capabilities=AgentCapabilities(load_session=True)
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        session = f"p{len(list(STATE.iterdir()))}"
        (STATE / session).write_text(f"{cwd}\n")
        return NewSessionResponse(session_id=session)

    async def load_session(self, session_id: str, **_: Any) -> LoadSessionResponse:
        for line in (STATE / session_id).read_text().splitlines():
            await self.client.session_update(session_id, update_agent_message_text(line))
        return LoadSessionResponse()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        words = prompt[0].text
        with (STATE / session_id).open("a") as file:
            file.write(f"{words}\n")
        if words == "wait":
            await self.client.session_update(session_id, update_agent_message_text("waiting"))
            (STATE / "notes").write_text(f"{os.getpid()} waiting\n")
            await self.cancelled.wait()
            return PromptResponse(stop_reason="cancelled")
        answer = await self.client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(tool_call_id="t", title="Speak"),
            options=[
                PermissionOption(option_id="y", name="Yes", kind="allow_once"),
                PermissionOption(option_id="n", name="No", kind="reject_once"),
            ],
        )
        assert isinstance(answer.outcome, AllowedOutcome)
        await self.client.session_update(session_id, update_agent_message_text(f"{answer.outcome.option_id}: {words}"))
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()


asyncio.run(run_agent(Parrot()))  # type: ignore[arg-type]
