"""The front end `acp` of a scenario: a client of the Agent Client Protocol, which sees the tree of agents.

What it was told stands in the transcript by session, since only the order within one session is a promise: what a
message of another agent says stands with its reader, and what a child is doing with the child.
"""

from __future__ import annotations

import msgspec
from anyio import Event
from anyio.abc import TaskGroup
from msgspec import Raw

from retinue.acp.server import Server
from retinue.acp.source import Fixed, Route
from retinue.base.frames import UNKNOWN_METHOD, Failure
from retinue.base.json import JSON, JSONObject, decode
from retinue.base.jsonrpc import Peer
from retinue.compose.app import App
from retinue.errors import BadInput, NotFound
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.pipes import MemoryPipe, pipe_pair
from retinue.testing.scenario.front_end import Mode
from retinue.testing.scenario.told import Told
from retinue.testing.scenario.witness import ROOT_ID

__all__ = ["Editor"]

_SYNC = "_retinue/sync"
"""A method that there is not: the answer comes behind everything that was told before."""


class Editor:
    """One client and, after each restart or disconnect, the next one that loads the same session."""

    def __init__(self) -> None:
        self.transcript: list[str] = []
        self._told = Told(ROOT_ID)
        self._app: App | None = None
        self._group: TaskGroup | None = None
        self._pipe: MemoryPipe | None = None
        self._peer: Peer | None = None
        self._gone = Event()
        self._answered = Event()
        self._is_prompting = False

    async def connect(self, app: App, group: TaskGroup) -> None:
        """See FrontEnd."""
        is_first, self._app, self._group = self._app is None, app, group
        if not is_first:
            self._told.note("(another process goes on)")
        await self._open(is_first=is_first)

    async def _open(self, *, is_first: bool) -> None:
        assert self._app is not None
        assert self._group is not None
        ours, theirs = pipe_pair()
        server = Server(theirs, Fixed(self._app, Route(images=True)), new_id=lambda: ROOT_ID)
        self._pipe, self._peer, self._gone = ours, Peer(ours, self._heard), Event()
        self._is_prompting = False
        self._group.start_soon(self._serve, server, self._gone)
        self._group.start_soon(self._peer.run)
        await self._ask("initialize", {"protocolVersion": 1, "clientCapabilities": {"subagents": {}}})
        where: JSONObject = {"cwd": str(self._app.cwd), "mcpServers": []}
        if is_first:
            await self._ask("session/new", where)
        else:
            await self._ask("session/load", {**where, "sessionId": ROOT_ID})

    async def _serve(self, server: Server, gone: Event) -> None:
        await server.serve()
        gone.set()

    async def _ask(self, method: str, params: JSONObject) -> JSON:
        assert self._peer is not None
        try:
            return decode(await self._peer.request(method, params))
        except Failure as failure:
            if failure.code == UNKNOWN_METHOD:
                return None
            raise BadInput(f"{method}: {failure.code}: {failure.message}") from failure

    async def _heard(self, method: str, params: Raw, is_request: bool) -> JSON:
        if method != "session/update":
            raise Failure(UNKNOWN_METHOD, f"a scenario's client knows no {method}")
        heard = msgspec.json.decode(params, type=_Notification)
        self._told.update(heard.session_id, heard.update)
        return None

    async def send(self, text: str, mode: Mode) -> None:
        """See FrontEnd. A client can only prompt, and has to wait for the answer before the next one."""
        if mode != "follow-up":
            raise BadInput(f"a client of ACP cannot {mode}; it can only prompt")
        if self._is_prompting:
            raise BadInput("a client of ACP waits for the answer to one prompt before the next; let the scenario wait")
        if self._gone.is_set():
            await self._open(is_first=False)
        assert self._group is not None
        self._is_prompting, self._answered = True, Event()
        self._told.note(f"> {text}")
        self._group.start_soon(self._prompt, text, self._answered)

    async def _prompt(self, text: str, answered: Event) -> None:
        try:
            params: JSONObject = {"sessionId": ROOT_ID, "prompt": [{"type": "text", "text": text}]}
            match await self._ask("session/prompt", params):
                case {"stopReason": str(reason)}:
                    self._told.note(f"({reason})")
                case other:
                    self._told.note(f"({other})")
        except BadInput as error:
            if not self._gone.is_set():
                self._told.note(f"(error) {error}")
        finally:
            self._is_prompting = False
            answered.set()

    def cancel(self) -> bool:
        """See FrontEnd."""
        assert self._app is not None
        assert self._peer is not None
        agent = self._app.host.agents.get(ROOT_ID)
        if agent is None or agent.status != "running":
            return False
        self._peer.notify("session/cancel", {"sessionId": ROOT_ID})
        return True

    async def disconnect(self) -> None:
        """See FrontEnd."""
        if self._pipe is None or self._gone.is_set():
            raise NotFound("the front end is not connected to a root")
        self._pipe.close()
        await self._gone.wait()
        self._told.note("(disconnected)")

    async def rest(self) -> None:
        """See FrontEnd."""
        assert self._app is not None
        if self._is_prompting:
            await self._answered.wait()
        host = self._app.host
        continuations = host.find(CONTINUATIONS)
        for agent in host.agents.roots():
            await (agent.wait_idle() if continuations is None else continuations.wait_quiet(agent))
        await host.sessions.writer.committed()
        if not self._gone.is_set():
            await self._ask(_SYNC, {})
        self.transcript.extend(self._told.new_lines())


class _Notification(msgspec.Struct, rename="camel"):
    session_id: str
    update: JSONObject
