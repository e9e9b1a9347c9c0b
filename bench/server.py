"""A model server whose answers follow from the request alone, for benchmarks on one machine.

The newest user message that holds a task decides:

    work N         N times one call of `echo`, then the final text
    fan N K        one message with N delegations, each to do `work K`, then the final text
    ... spread=S   child i of a fan does `work K + i mod S`
    ... wait=MS    every answer waits so long before its first byte; children are told the same, and which part they are

The step is the number of assistant messages since. `GET /rows` tells when each request arrived and was answered, on the
clock that `time.perf_counter` reads on Linux, and how many were open; `POST /clear` forgets them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import time
from typing import Any, cast

from aiohttp import web

TASK = re.compile(r"\b(work|fan) (\d+)(?: (\d+))?(?: spread=(\d+))?(?: wait=(\d+))?(?: part=\d+)?")
DELEGATES = ("subagent", "delegate")
FINAL = "done, and said in a few words that stream in pieces"


class Scripted:
    """Answers and remembers."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, float, float]] = []
        self.open = 0
        self.most_open = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """One streamed reply."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            raw = await request.read()
            arrived = time.perf_counter()
            body = json.loads(raw)
            task, step, delta = answer(body["messages"], body.get("tools") or [])
            if task[5]:
                await asyncio.sleep(int(task[5]) / 1000)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            await response.write(b"".join(events(delta, len(raw))))
            self.rows.append((task[0], step, arrived, time.perf_counter()))
            await response.write_eof()
            return response
        finally:
            self.open -= 1

    async def tell(self, _: web.Request) -> web.Response:
        """What happened since the last `clear`."""
        return web.json_response({"rows": self.rows, "open": self.open, "most_open": self.most_open})

    async def clear(self, _: web.Request) -> web.Response:
        """Nothing has happened."""
        self.rows, self.most_open = [], self.open
        return web.Response()


def answer(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> tuple[re.Match[str], int, dict[str, Any]]:
    """The task, the step within it, and the message that answers."""
    task, step = None, 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            step += 1
        elif message["role"] == "user" and (task := TASK.search(text_of(message["content"]))):
            break
    if task is None:
        raise web.HTTPBadRequest(text="no task in the conversation")
    kind, count = task[1], int(task[2])
    if kind == "work" and step < count:
        return task, step, {"tool_calls": [call("echo", step, {"text": f"step {step}"})]}
    if kind == "fan" and step == 0:
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        name = next(name for name in DELEGATES if name in offered)
        given: dict[str, Any] = {}
        for key, value in (("description", "a part"), ("run_in_background", False)):
            if key in offered[name]["properties"]:
                given[key] = value
        calls = [call(name, index, {"prompt": part(task, index), **given}) for index in range(count)]
        return task, step, {"tool_calls": calls}
    return task, step, {"content": FINAL}


def part(task: re.Match[str], index: int) -> str:
    """What one child of a fan is told."""
    work = int(task[3]) + index % int(task[4] or 1)
    wait = f" wait={task[5]}" if task[5] else ""
    return f"work {work}{wait} part={index}"


def call(name: str, index: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool call as it stands in a delta."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"index": index, "id": f"call_{name}_{index}", "type": "function", "function": function}


def text_of(content: object) -> str:
    """The text of a message, whose content may come in parts."""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in cast("list[dict[str, Any]]", content))
    return str(content)


def events(delta: dict[str, Any], size: int) -> list[bytes]:
    """The stream: calls in one piece, text in several, the reason, usage, the closing mark."""
    if "content" in delta:
        words = delta["content"].split(" ")
        pieces = [{"content": word if i == 0 else f" {word}"} for i, word in enumerate(words)]
    else:
        pieces = [delta]
    reason = "stop" if "content" in delta else "tool_calls"
    choices = [*({"index": 0, "delta": piece, "finish_reason": None} for piece in pieces)]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    usage = {"prompt_tokens": size // 4, "completion_tokens": 8, "total_tokens": size // 4 + 8}
    chunks = [{"id": "r", "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
    chunks.append({"id": "r", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return [*(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n"]


async def serve(port: int) -> None:
    """Serves until it is ended; the first line of output is the port."""
    logging.getLogger("aiohttp.server").disabled = True  # clients are killed on purpose
    scripted = Scripted()
    app = web.Application(client_max_size=2**30)
    app.add_routes(
        [
            web.post("/v1/chat/completions", scripted.complete),
            web.get("/rows", scripted.tell),
            web.post("/clear", scripted.clear),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=2048)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(serve(parser.parse_args().port))
