"""Calling a tool as an agent would, without an agent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retinue.base.ids import SessionId
from retinue.errors import ToolFailure
from retinue.model.content import text_of
from retinue.tools.tool import CallKey, Tool, ToolContext, ToolResult

__all__ = ["StubCaller", "ToolBox"]


@dataclass(frozen=True)
class StubCaller:
    """An agent as far as tools know it."""

    id: SessionId
    cwd: Path


class ToolBox:
    """Tools of one agent, by name."""

    def __init__(self, tools: list[Tool], cwd: Path, session: str = "session-a") -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.caller = StubCaller(SessionId(session), cwd)
        self.calls = 0

    def sibling(self, session: str) -> "ToolBox":
        """The same tools in the hands of another agent of the same folder."""
        return ToolBox(list(self.tools.values()), self.caller.cwd, session)

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        self.calls += 1
        key = CallKey(session_id=self.caller.id, seq=self.calls, index=0)
        context = ToolContext(caller=self.caller, key=key, name=name, call_id="c", turn=1, step=1)
        return await self.tools[name].body(context, arguments)

    async def text(self, name: str, /, **arguments: Any) -> str:
        return text_of((await self.call(name, **arguments)).content)

    async def refusal(self, name: str, /, **arguments: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as caught:
            await self.call(name, **arguments)
        return caught.value
