"""A server for tests, by hand, since one made with the SDK takes a second and a half to start."""

import json
import os
import sys
from pathlib import Path
from typing import Any

TEXT = {"type": "string"}


def tool(name: str, description: str, /, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("add", "Adds two numbers.", a={"type": "integer"}, b={"type": "integer"}),
    tool("fail", "Fails.", why=TEXT),
    tool("variable", "The value of an environment variable of this process.", name=TEXT),
    tool("die", "Ends the process."),
    tool("wait", "Waits until it is cancelled, and leaves marks.", mark=TEXT),
    tool("grow", "Offers one tool more."),
]
NOTE = {"uri": "notes://first", "name": "first", "description": "The first note.", "mimeType": "text/plain"}
waiting: dict[object, Path] = {}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(id: object, name: str, arguments: dict[str, Any]) -> None:
    text, is_error = "", False
    match name:
        case "add":
            text = str(arguments["a"] + arguments["b"])
        case "fail":
            text, is_error = arguments["why"], True
        case "variable":
            text = os.environ.get(arguments["name"], "(none)")
        case "die":
            print("dying of secret-token-1", file=sys.stderr, flush=True)
            os._exit(3)
        case "wait":
            waiting[id] = Path(arguments["mark"])
            waiting[id].write_text("started")
            return
        case "grow":
            TOOLS.append(tool("grown", "New."))
            say(method="notifications/tools/list_changed")
        case _:
            is_error = True
    say(id=id, result={"content": [{"type": "text", "text": text}], "isError": is_error})


if len(sys.argv) > 1:
    with Path(sys.argv[1]).open("a") as file:
        file.write("started\n")
for line in sys.stdin:
    message = json.loads(line)
    id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "resources": {}}
            info = {"name": "plain", "version": "1"}
            say(id=id, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
        case "tools/list":
            say(id=id, result={"tools": TOOLS})
        case "tools/call":
            call(id, params["name"], params.get("arguments") or {})
        case "resources/list":
            say(id=id, result={"resources": [NOTE]})
        case "resources/read":
            say(id=id, result={"contents": [{"uri": params["uri"], "text": "remember the milk"}]})
        case "notifications/cancelled":
            waiting.pop(params["requestId"]).write_text("cancelled")
        case _ if id is not None:
            say(id=id, error={"code": -32601, "message": "no such method"})
        case _:
            pass
