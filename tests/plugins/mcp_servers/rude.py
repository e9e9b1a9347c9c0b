"""A server for tests that breaks the protocol in the way that its argument names. Made by hand: no SDK would do it."""

import json
import os
import sys
import time
from pathlib import Path

how = sys.argv[1]

GOOD = {"name": "good", "description": "fine", "inputSchema": {"type": "object"}}
TOOLS = {
    "liar": [
        GOOD,
        {"name": "bad schema", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
        {"name": "huge", "inputSchema": {"type": "object", "description": "x" * 100_000}},
        {"name": "long", "description": "y" * 100_000, "inputSchema": {"type": "object"}},
        {"name": "a" * 100, "inputSchema": {"type": "object"}},
        {"name": "a.b", "inputSchema": {"type": "object"}},
        {"name": "a/b", "inputSchema": {"type": "object"}},
    ],
    "teller": [
        {
            "name": "tell",
            "description": f"Uses {os.environ.get('TOKEN')}.",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "string", "default": os.environ.get("TOKEN")}},
            },
        }
    ],
    "schemas": [
        {"name": "array", "inputSchema": {"type": "array"}},
        GOOD,
        {"name": "none"},
        {"name": "truth", "inputSchema": True},
        {"name": "output", "inputSchema": {"type": "object"}, "outputSchema": {"type": "string"}},
        "no tool at all",
        {"name": "half", "description": "a\ud83db", "inputSchema": {"type": "object"}},
    ],
    "many": [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(1000)],
}


def say(id: object, result: dict[str, object]) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)


if how == "silent":
    time.sleep(600)
if how == "quitter":
    sys.exit(f"no licence for {os.environ.get('TOKEN')}")
for line in sys.stdin:
    if how == "noise":
        print("this is no JSON", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/unknown", "params": {}}), flush=True)
        sys.stderr.write("e" * 1_000_000)
        sys.stderr.flush()
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            say(
                message["id"],
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "rude", "version": "1"},
                },
            )
        case "tools/list":
            say(message["id"], {"tools": TOOLS.get(how, [GOOD])})
        case "tools/call" if how == "refuser":
            error = {"code": -32000, "message": "not today"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        case "tools/call" if how == "stays":
            Path(sys.argv[2]).write_text(f"{os.getpid()}\n")
        case "tools/call" if how == "halves":
            say(message["id"], {"content": [{"type": "text", "text": "cut \ud83d"}]})
        case "tools/call" if how == "mumbler":
            say(message["id"], "no object")  # pyright: ignore[reportArgumentType]
        case "tools/call":
            say(message["id"], {"content": 7} if how == "liar" else {"content": [{"type": "text", "text": "ok"}]})
        case _:
            if "id" in message:
                error = {"code": -32601, "message": "no such method"}
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
if how == "stays":
    time.sleep(600)
