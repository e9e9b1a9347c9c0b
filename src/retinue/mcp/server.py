"""The server: tools of the protocol in front of `Delegation`. It and `stdio` import the official SDK."""

from __future__ import annotations

import inspect
import logging
from importlib.metadata import version
from typing import Any, cast

import anyio
import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from retinue.base.json import JSONObject, encode
from retinue.base.standard import StandardStreams
from retinue.compose.app import App
from retinue.errors import RetinueError, error_record
from retinue.mcp.delegation import Delegation
from retinue.mcp.desks import open_desks
from retinue.mcp.stdio import host_streams
from retinue.mcp.tools import INSTRUCTIONS, TOOLS, Arguments, parse_arguments, schema_of

__all__ = ["serve"]

_log = logging.getLogger("retinue")

_PROGRESS_S = 5.0
"""How often a host that asked for it is told that a call still waits."""


async def serve(app: App) -> None:
    """One host was served over the standard streams until it closed them; its agents are left as they are.

    Raises: MissingSeam if the configuration leaves delegation out, StoreFailure, CorruptSession.
    """
    pipe = StandardStreams()
    async with open_desks(app) as desks:
        server = _server(Delegation(app, desks))
        async with host_streams(pipe) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


def _server(delegation: Delegation) -> Server[Any]:
    offered = [_tool(name, tool) for name, tool in TOOLS.items()]

    async def list_tools(_: object, __: object) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=offered)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: wire.CallToolRequestParams
    ) -> wire.CallToolResult:
        answer: wire.CallToolResult | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(_tell, context)
            answer = await _answer(params.name, cast(JSONObject, params.arguments or {}), delegation)
            group.cancel_scope.cancel()
        assert answer is not None
        return answer

    return Server(
        "retinue",
        version=version("retinue"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(name: str, tool: type[Arguments]) -> wire.Tool:
    return wire.Tool(
        name=name,
        description=inspect.cleandoc(tool.__doc__ or ""),
        input_schema=schema_of(tool),
        annotations=wire.ToolAnnotations(read_only_hint=tool.is_reading),
    )


async def _tell(context: ServerRequestContext[Any, Any]) -> None:
    """A host that wants to know is told again and again that its call still waits."""
    passed_s = 0.0
    while True:
        await anyio.sleep(_PROGRESS_S)
        passed_s += _PROGRESS_S
        await context.session.report_progress(passed_s, None, "still waiting")


async def _answer(name: str, given: JSONObject, delegation: Delegation) -> wire.CallToolResult:
    """What the call came to. The boundary where a failure becomes a value."""
    try:
        return _result(await parse_arguments(name, given).perform(delegation))
    except RetinueError as error:
        return _failure(error)
    except Exception as error:
        _log.exception("the call of %s failed", name)
        return _failure(error)


def _result(value: JSONObject) -> wire.CallToolResult:
    text = wire.TextContent(type="text", text=encode(value).decode())
    return wire.CallToolResult(content=[text], structured_content=value)


def _failure(error: Exception) -> wire.CallToolResult:
    text = wire.TextContent(type="text", text=": ".join(error_record(error)))
    return wire.CallToolResult(content=[text], is_error=True)
