"""A client of the Agent Client Protocol for tests: raw frames over a pipe, each checked against the schema."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from retinue.acp.server import Server
from retinue.acp.source import Fixed, Route, Source
from retinue.base.ids import SessionId, new_session_id
from retinue.base.lines import MAX_LINE_BYTES
from retinue.compose.app import App
from retinue.testing.pipes import MemoryPipe, pipe_pair
from tests.acp.frames import check_frame, check_result

__all__ = ["SUBAGENTS", "Client", "WireError", "connected", "text_block"]

SUBAGENTS = {"subagents": {}}


class WireError(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data = error.get("data")


class Client:
    """One client. Frames are in `frames`, what its sessions were told in `updates`, both in order."""

    def __init__(self, pipe: MemoryPipe, *, unstable: bool = False) -> None:
        self.pipe = pipe
        self.unstable = unstable
        self.frames: list[dict[str, Any]] = []
        self.updates: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[Any, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        """Requests of the server."""
        self._methods: dict[Any, str] = {}
        self._last_id = 0
        self._changed = anyio.Event()

    async def read(self) -> None:
        """Takes what comes, until the server has gone."""
        rest = b""
        while data := await self.pipe.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            self._changed.set()
            self._changed = anyio.Event()
        assert rest == b"", "the last frame is not whole"

    def _take(self, frame: dict[str, Any]) -> None:
        check_frame(frame, unstable=self.unstable)
        self.frames.append(frame)
        if "method" in frame and "id" in frame:
            self.asked.append(frame)
        elif frame.get("method") == "session/update":
            self.updates.append((frame["params"]["sessionId"], frame["params"]["update"]))
        elif "method" not in frame:
            self.answers[frame["id"]] = frame
            if "result" in frame:
                check_result(self._methods[frame["id"]], frame["result"], unstable=self.unstable)

    # What the client says

    def give(self, frame: Any) -> None:
        """The frame is with the server."""
        self.pipe.give(json.dumps(frame).encode() + b"\n")

    def notify(self, method: str, **params: Any) -> None:
        self.give({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self, method: str, **params: Any) -> int:
        """A request under way; the answer is its id."""
        return self.begin(method, params)

    def begin(self, method: str, params: Any) -> int:
        """The same with any parameters."""
        self._last_id += 1
        self._methods[self._last_id] = method
        self.give({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    async def answer(self, id: int) -> dict[str, Any]:
        """The result of a request under way. Raises: WireError."""
        await self.wait(lambda: id in self.answers)
        frame = self.answers[id]
        if "error" in frame:
            raise WireError(frame["error"])
        return frame["result"]

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.answer(self.start(method, **params))

    async def initialize(self, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.request(
            "initialize",
            protocolVersion=1,
            clientCapabilities=capabilities or {},
            clientInfo={"name": "tests", "version": "1"},
        )

    async def new(self, cwd: object, **more: Any) -> SessionId:
        """The id of a new session."""
        return SessionId((await self.request("session/new", cwd=str(cwd), mcpServers=[], **more))["sessionId"])

    def start_prompt(self, session: str, text: str) -> int:
        return self.start("session/prompt", sessionId=session, prompt=[text_block(text)])

    async def prompt(self, session: str, text: str) -> str:
        """The stop reason."""
        return (await self.answer(self.start_prompt(session, text)))["stopReason"]

    # What the client has heard

    async def wait(self, is_there: Callable[[], object]) -> None:
        """Something holds of what was received."""
        with anyio.fail_after(15):
            while not is_there():
                await self._changed.wait()

    def of(self, session: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The updates of a session, or those of one kind."""
        return [u for id, u in self.updates if id == session and kind in (None, u["sessionUpdate"])]

    def said(self, session: str, kind: str = "agent_message_chunk") -> str:
        """The text of a session's chunks, messages apart by lines."""
        lines: dict[str, str] = {}
        for update in self.of(session, kind):
            if update["content"]["type"] == "text":
                id = update["messageId"]
                lines[id] = lines.get(id, "") + update["content"]["text"]
        return "\n".join(lines.values())


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@asynccontextmanager
async def connected(
    app: App | None = None,
    *,
    source: Source | None = None,
    capabilities: dict[str, Any] | None = None,
    ids: Sequence[str] = (),
    initialize: bool = True,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> AsyncGenerator[Client]:
    """A client of a server over `app`. Left, it has gone and the server has ended."""
    ours, theirs = pipe_pair()
    if source is None:
        assert app is not None
        source = Fixed(app, Route(images=True))
    names = iter(ids)
    new_id = (lambda: SessionId(next(names))) if ids else new_session_id
    server = Server(theirs, source, new_id=new_id, max_line_bytes=max_line_bytes)
    client = Client(ours, unstable=capabilities is not None)
    async with anyio.create_task_group() as group:
        group.start_soon(client.read)
        async with anyio.create_task_group() as serving:
            serving.start_soon(server.serve)
            if initialize:
                await client.initialize(capabilities)
            yield client
            ours.close()
        group.cancel_scope.cancel()
