"""The least that can be done: the same requests and streams with aiohttp alone, and no harness around them.

A conversation encodes its whole history for each request, runs the calls of a reply side by side, and does children in
the same loop. With `sync` each message is also appended to a file and forced to disk before anything follows from it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp


def tool(name: str, parameter: str) -> dict[str, Any]:
    """A tool with one text parameter."""
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


TOOLS = [tool("echo", "text"), tool("delegate", "prompt")]


class Floor:
    """Conversations over one session of connections."""

    def __init__(self, http: aiohttp.ClientSession, url: str, folder: Path | None) -> None:
        self.http = http
        self.url = url + "/chat/completions"
        self.folder = folder
        self.begun = 0

    async def converse(self, task: str) -> str:
        """The final text of a conversation about `task`."""
        self.begun += 1
        fd = None
        if self.folder is not None:
            fd = os.open(self.folder / f"{self.begun}.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        messages: list[dict[str, Any]] = []

        def keep(*new: dict[str, Any]) -> None:
            for message in new:
                messages.append(message)
                if fd is not None:
                    os.write(fd, json.dumps(message).encode() + b"\n")
                    os.fsync(fd)

        keep({"role": "system", "content": "You are an agent."}, {"role": "user", "content": task})
        try:
            while True:
                reply = await self.ask(messages)
                keep(reply)
                calls = reply.get("tool_calls")
                if not calls:
                    return str(reply["content"])
                tasks = [asyncio.ensure_future(self.perform(c)) for c in calls]  # noqa: TID251 - a floor owns nothing
                for asked, running in zip(calls, tasks, strict=True):
                    keep({"role": "tool", "tool_call_id": asked["id"], "content": await running})
        finally:
            if fd is not None:
                os.close(fd)

    async def perform(self, asked: dict[str, Any]) -> str:
        """What one call comes to."""
        arguments = json.loads(asked["function"]["arguments"])
        if asked["function"]["name"] == "echo":
            return str(arguments["text"])
        return await self.converse(arguments["prompt"])

    async def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """One request; the streamed reply as a message."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps({"model": "fake-model", "messages": messages, "tools": TOOLS, **options}).encode()
        text: list[str] = []
        calls: list[dict[str, Any]] = []
        async with self.http.post(self.url, data=body, headers={"Content-Type": "application/json"}) as response:
            response.raise_for_status()
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    text.append(choice["delta"].get("content") or "")
                    calls.extend(choice["delta"].get("tool_calls") or ())
        message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
        if calls:
            message["tool_calls"] = [{key: c[key] for key in ("id", "type", "function")} for c in calls]
        return message


async def run(job: dict[str, Any]) -> str:
    """The final text of the job's task."""
    folder = Path(job["state"]) if job.get("sync") else None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        return await Floor(http, job["base_url"], folder).converse(job["prompt"])


if __name__ == "__main__":
    said = asyncio.run(run(json.loads(sys.argv[1])))
    print(json.dumps({"ok": said.startswith("done"), "final": said}))
