"""What a server's listing of tools is before the SDK sees it, which refuses all of it for one tool that it dislikes."""

from __future__ import annotations

import logging
from typing import Any, cast

import mcp_types as wire
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

__all__ = ["with_usable_tools"]

_log = logging.getLogger("retinue")


def with_usable_tools(message: SessionMessage, server: str) -> SessionMessage:
    """The message; if it lists tools, without those that are none. They are named in warnings."""
    match message.message:
        case wire.JSONRPCResponse(result=result) if isinstance(result.get("tools"), list) and "content" not in result:
            kept = [tool for tool in cast("list[Any]", result["tools"]) if _is_usable(tool, server)]
            response = message.message.model_copy(update={"result": {**result, "tools": kept}})
            return SessionMessage(response, message.metadata)
        case _:
            return message


def _is_usable(tool: Any, server: str) -> bool:
    try:
        known = wire.Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    else:
        if all(
            schema is None or schema.get("type") == "object" for schema in (known.input_schema, known.output_schema)
        ):
            return True
        why = "a schema of a tool is of type object"
    name = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else tool
    _log.warning("tool %.80s of MCP server %s is left out: %s", name, server, why)
    return False
