"""A server of models whose every conversation follows its own script, for tests that drive the whole command.

A script is a list of sessions, `{name, match, replies}`. A request belongs to the first one whose `match` (a regular
expression) is found in a user message, and takes its next reply:

    {text: ..., calls: [{tool, args | raw, id?}], reasoning: ...}     a whole reply
    {truncated: ...} {refusal: ...}                                   ends with `length` or `content_filter`
    {fail: STATUS, retry_after: S, message: ...}                      an HTTP error
    {cut: true, text: ...}                                            the connection ends in the middle
    ... with hold: GATE (before the first byte), hold_after: GATE (after the text), open: [GATES], delay_ms, chunk: N,
    usage: {prompt_tokens, completion_tokens}, optional: true (may stay unused)

`{{re:PATTERN}}` in a text or an argument becomes what the conversation last said that fits the pattern's first group.
The same can be steered over HTTP: GET /admin/state, GET /admin/requests, POST /admin/open/GATE.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal

from tests.support.model_server import Exchange, delta, event, model_server

__all__ = ["Request", "ScriptedServer", "scripted_server"]

_KNOWN = {"text", "calls", "reasoning", "truncated", "refusal", "fail", "retry_after", "message", "cut", "hold"}
_KNOWN |= {"hold_after", "open", "delay_ms", "chunk", "usage", "optional"}
_CALL_PART = 64


@dataclass
class Request:
    """One request as the server saw it. `outcome` is pending, answered, cut, fail N, aborted, unexpected, unmatched."""

    session: str | None
    index: int
    body: dict[str, Any]
    headers: dict[str, str]
    at_s: float = field(default_factory=time.monotonic)
    outcome: str = "pending"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages", [])

    @property
    def tools(self) -> set[str]:
        return {tool["function"]["name"] for tool in self.body.get("tools", [])}


class _Session:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.name: str = spec["name"]
        self.match = re.compile(spec["match"])
        self.replies: list[dict[str, Any]] = list(spec.get("replies", []))
        for reply in self.replies:
            assert reply.keys() <= _KNOWN, f"{self.name}: unknown {sorted(reply.keys() - _KNOWN)}"
        self.taken = 0
        self.aborted = 0
        self.unexpected = 0

    def take(self) -> dict[str, Any] | None:
        if self.taken == len(self.replies):
            self.unexpected += 1
            return None
        self.taken += 1
        return self.replies[self.taken - 1]

    def state(self) -> dict[str, int]:
        left = [reply for reply in self.replies[self.taken :] if not reply.get("optional")]
        return {"requests": self.taken, "left": len(left), "aborted": self.aborted, "unexpected": self.unexpected}


class ScriptedServer:
    """Handed out by `scripted_server`. Its methods are called from the test's thread."""

    def __init__(self, script: dict[str, Any]) -> None:
        self._sessions = [_Session(spec) for spec in script["sessions"]]
        self._gates: dict[str, anyio.Event] = {}
        self._portal: Any = None
        self._changed = threading.Condition()
        self.port = 0
        self.requests: list[Request] = []

    # For tests.

    @property
    def url(self) -> str:
        """What `--base-url` takes."""
        return f"http://127.0.0.1:{self.port}/v1"

    def open(self, *gates: str) -> None:
        """Whoever waits at these gates goes on, and so do later ones."""
        for gate in gates:
            self._portal.call(self._open, gate)

    def of(self, session: str) -> list[Request]:
        """The requests of one session, in order."""
        return [request for request in self.requests if request.session == session]

    def take_back(self, session: str, count: int) -> None:
        """The last replies are given again: who asked has lost them."""
        (one,) = [known for known in self._sessions if known.name == session]
        one.taken -= count

    def wait(self, condition: Callable[["ScriptedServer"], bool], timeout_s: float = 15.0) -> None:
        """Return once `condition` holds; it is looked at whenever something happened here."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), timeout_s), f"never held: {self.state()}"

    def wait_requests(self, **counts: int) -> None:
        """Return once each named session has made that many requests."""
        self.wait(lambda server: all(len(server.of(name)) >= count for name, count in counts.items()))

    def state(self) -> dict[str, Any]:
        """The accounts, as GET /admin/state shows them."""
        return {
            "sessions": {session.name: session.state() for session in self._sessions},
            "unmatched": sum(request.outcome == "unmatched" for request in self.requests),
            "gates": {name: gate.is_set() for name, gate in self._gates.items()},
        }

    def check(self) -> None:
        """Fail unless every request had a reply and every reply that is not optional was used."""
        state = self.state()
        wrong = {n: s for n, s in state["sessions"].items() if s["left"] or s["unexpected"]}
        assert (wrong, state["unmatched"]) == ({}, 0)

    # On the server's loop.

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _open(self, gate: str) -> None:
        self._gate(gate).set()
        self._notify()

    def _gate(self, name: str) -> anyio.Event:
        return self._gates.setdefault(name, anyio.Event())

    async def answer(self, exchange: Exchange) -> None:
        """Whatever was asked."""
        match exchange.path.removeprefix("/").split("/"):
            case ["admin", "state"]:
                await exchange.whole(self.state())
            case ["admin", "requests"]:
                shown = [
                    {"session": r.session, "index": r.index, "t": r.at_s, "outcome": r.outcome} for r in self.requests
                ]
                await exchange.whole(shown)
            case ["admin", "open", gate]:
                self._open(gate)
                await exchange.whole({"ok": True})
            case [*_, "chat", "completions"]:
                await self._complete(exchange)
            case _:
                await exchange.whole({"error": {"message": f"nothing at {exchange.path}"}}, 404)

    async def _complete(self, exchange: Exchange) -> None:
        messages = exchange.json.get("messages", [])
        told = "\n".join(_text(m) for m in messages if m.get("role") == "user")
        session = next((s for s in self._sessions if s.match.search(told)), None)
        request = Request(
            session.name if session else None, session.taken if session else 0, exchange.json, exchange.headers
        )
        reply = session.take() if session else None
        if session is None or reply is None:
            request.outcome = "unexpected" if session else "unmatched"
        self.requests.append(request)
        self._notify()
        if session is None or reply is None:
            await exchange.whole({"error": {"message": f"no reply is scripted ({request.outcome})"}}, 400)
            return
        try:
            request.outcome = await self._reply(exchange, reply, request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            request.outcome = "aborted"
        if request.outcome == "aborted":
            session.aborted += 1
        self._notify()
        if request.outcome in ("aborted", "cut"):
            raise anyio.ClosedResourceError

    async def _reply(self, exchange: Exchange, reply: dict[str, Any], request: Request) -> str:
        await anyio.sleep(reply.get("delay_ms", 0) / 1000)
        if not await self._passed(exchange, reply.get("hold")):
            return "aborted"
        for gate in reply.get("open", ()):
            self._open(gate)
        if "fail" in reply:
            more = {"Retry_After": str(reply["retry_after"])} if "retry_after" in reply else {}
            error = {"error": {"message": reply.get("message", "this failure is scripted"), "type": "scripted"}}
            await exchange.whole(error, reply["fail"], **more)
            return f"fail {reply['fail']}"
        said = "\n".join(_text(message) for message in request.messages)
        return await self._stream(exchange, _filled(reply, said), len(self.requests))

    async def _passed(self, exchange: Exchange, gate: str | None) -> bool:
        """The gate is open; False if the client left first."""
        if gate is None:
            return True
        passed = False

        async def leave_with_client() -> None:
            await exchange.client_left()
            waiting.cancel_scope.cancel()

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(leave_with_client)
            await self._gate(gate).wait()
            passed = True
            waiting.cancel_scope.cancel()
        return passed

    async def _stream(self, exchange: Exchange, reply: dict[str, Any], number: int) -> str:
        await exchange.head()
        if reply.get("reasoning"):
            await exchange.send(event(delta(reasoning_content=reply["reasoning"])))
        text = reply.get("text") or reply.get("truncated") or reply.get("refusal") or ""
        width = reply.get("chunk", 16)
        for start in range(0, len(text), width):
            await exchange.send(event(delta(content=text[start : start + width])))
        if reply.get("cut"):
            return "cut"
        if not await self._passed(exchange, reply.get("hold_after")):
            return "aborted"
        calls = reply.get("calls", [])
        for index, call in enumerate(calls):
            arguments = call["raw"] if "raw" in call else json.dumps(call.get("args", {}))
            arguments = arguments[:-3] if "truncated" in reply else arguments
            function = {"name": call["tool"], "arguments": ""}
            started = {"index": index, "id": call.get("id", f"call_{number}_{index}"), "type": "function"}
            await exchange.send(event(delta(tool_calls=[{**started, "function": function}])))
            for start in range(0, len(arguments), _CALL_PART):
                part = {"index": index, "function": {"arguments": arguments[start : start + _CALL_PART]}}
                await exchange.send(event(delta(tool_calls=[part])))
        ended = "length" if "truncated" in reply else "content_filter" if "refusal" in reply else None
        await exchange.send(event(delta(ended or ("tool_calls" if calls else "stop"))))
        usage = {"prompt_tokens": 10, "completion_tokens": 5, **reply.get("usage", {})}
        await exchange.send(event({"choices": [], "usage": usage}))
        await exchange.send(event("[DONE]"))
        await exchange.end()
        return "answered"


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def _filled(value: Any, said: str) -> Any:
    match value:
        case dict():
            return {key: _filled(inner, said) for key, inner in value.items()}
        case list():
            return [_filled(inner, said) for inner in value]
        case str():
            return re.sub(r"\{\{re:(.+?)\}\}", lambda m: (re.findall(m.group(1), said) or ["NOTHING-FITS"])[-1], value)
        case _:
            return value


@contextmanager
def scripted_server(*sessions: dict[str, Any]) -> Generator[ScriptedServer]:
    """A listening server in a thread of its own; leaving the block ends it."""
    server = ScriptedServer({"sessions": list(sessions)})
    with start_blocking_portal() as portal:
        server._portal = portal
        with portal.wrap_async_context_manager(model_server(server.answer)) as running:
            server.port = running.port
            yield server
