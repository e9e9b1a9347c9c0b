"""All sessions that one client has open: made, brought back, found and closed."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio

from retinue.acp.listing import absolute, same_folder
from retinue.acp.outputs import TerminalKey
from retinue.acp.params import LoadParams, McpServer, NewParams
from retinue.acp.permission import ClientAnswers, Start
from retinue.acp.session import OpenSession
from retinue.acp.tree import TreeView
from retinue.acp.updates import Update
from retinue.agent.signals import CallOutput, ChunkArrived, ChunksWithdrawn
from retinue.base.frames import INVALID_PARAMS, RESOURCE_NOT_FOUND, Failure
from retinue.base.ids import SessionId
from retinue.base.json import JSON, JSONObject
from retinue.base.jsonrpc import Peer
from retinue.base.scope import Undo
from retinue.compose.app import App
from retinue.errors import ConfigError
from retinue.host.approvals import APPROVALS
from retinue.plugins.mcp.servers import ServerConfig
from retinue.plugins.mcp.trees import TREE_SERVERS
from retinue.plugins.permissions import PERMISSIONS, Preset
from retinue.session.events import Event
from retinue.session.session import Session
from retinue.subagent.lifecycle import ExternalCall

__all__ = ["OpenSessions"]

_MODES: Sequence[tuple[Preset, str, str]] = (
    ("read-only", "Read only", "Reads and searches; changes nothing."),
    ("workspace-write", "Workspace", "Changes files inside the working folder."),
    ("full-access", "Full access", "Changes files and runs commands everywhere."),
)
_PAUSE_S, _REPLACED_PAUSE_S = 0.1, 1.0
"""Between two times at which what calls say is told: where it is appended, and where it replaces what was told."""
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")

S = TypeVar("S", ChunkArrived, ChunksWithdrawn, CallOutput, ExternalCall)


class OpenSessions:
    """The sessions of one connection."""

    def __init__(self, app: App, peer: Peer, start: Start, *, subagents: bool, terminals: TerminalKey | None) -> None:
        """`start` starts the tasks that ask the client, and the one that tells it what calls say."""
        self._app = app
        self._peer = peer
        self._start = start
        self._subagents = subagents
        self._terminals: TerminalKey | None = terminals
        self._said = anyio.Event()
        """A call has said something that was not told."""
        self._views: dict[SessionId, TreeView] = {}
        self._open: dict[SessionId, OpenSession] = {}
        self._changing: WeakValueDictionary[SessionId, anyio.Lock] = WeakValueDictionary()
        """Sessions that are being brought back or closed: one thing after the other for each."""

    @contextmanager
    def following(self) -> Generator[None]:
        """The client is told of what happens in its trees."""

        def observe(session: Session, events: Sequence[Event]) -> None:
            view = self._views.get(session.root)
            if view is not None:
                view.observe(session, events)

        def shown(show: Callable[[TreeView, S], None]) -> Callable[[S], None]:
            def listener(signal: S) -> None:
                view = self._views.get(signal.agent.session.root)
                if view is not None:
                    show(view, signal)

            return listener

        def output(view: TreeView, signal: CallOutput) -> None:
            view.output(signal)
            self._said.set()

        host = self._app.host
        self._start(self._tell_output)
        with (
            host.sessions.observe(observe, durable=True),
            host.bus.on(ChunkArrived, shown(TreeView.chunk)),
            host.bus.on(ChunksWithdrawn, shown(TreeView.withdrawn)),
            host.bus.on(CallOutput, shown(output)),
            host.bus.on(ExternalCall, shown(TreeView.external)),
        ):
            yield

    def get(self, id: SessionId) -> OpenSession:
        """The open session. Raises: Failure."""
        found = self._open.get(id)
        if found is None:
            raise Failure(RESOURCE_NOT_FOUND, f"session {id!r} is not open here; load it")
        return found

    async def new(self, id: SessionId, params: NewParams) -> JSONObject:
        """The result of `session/new`: the session is durable, and its client hears of it from here on."""
        folder = _folder(params)
        await self._bring_servers(id, params.mcp_servers, folder)
        view = self._views[id] = self._view(id)
        undo = self._answering(view)
        try:
            agent = await self._app.agent(id=id, cwd=folder)
        except BaseException:
            undo()
            del self._views[id]
            with anyio.CancelScope(shield=True):
                await self._take_servers(id)
            raise
        self._open[id] = OpenSession(self._app, agent, view, is_own=True, undo=undo)
        view.is_muted = False
        return {"sessionId": id, **self._modes(id)}

    async def load(self, params: LoadParams, *, tell: bool) -> JSONObject:
        """The result of `session/load`, or of `session/resume` without `tell`: the session goes on with what it owes.

        Raises: Failure for a folder that is not its own; SessionNotFound, BadInput, SessionHeld. What was open stays
        open then, and its client goes on hearing of it.
        """
        folder, id = _folder(params), SessionId(params.session_id)
        async with self._lock(id):
            await self._bring_back(id, folder, params.mcp_servers, tell=tell)
        return self._modes(id)

    async def _bring_back(self, id: SessionId, folder: Path, servers: Sequence[McpServer], *, tell: bool) -> None:
        sessions, agents = self._app.host.sessions, self._app.host.agents
        store = sessions.store
        stored = await store.read(id)
        own = stored.header.cwd
        if own is not None and not same_folder(own, folder):
            raise Failure(INVALID_PARAMS, f"session {id!r} works in {own}; load it with that folder")
        if stored.header.origin is not None:
            raise Failure(INVALID_PARAMS, f"session {id!r} is a child of {stored.header.parent_session!r}")
        is_here = agents.get(id) is not None
        if not is_here:
            await self._bring_servers(id, servers, folder)
        known = self._open.get(id)
        is_own = not is_here or (known is not None and known.is_own)
        undo = Undo(lambda: None)
        try:
            await sessions.hold(id)  # nothing is told of a tree that another process drives
            view = await self._watch(id, tell=tell)
            if is_own:
                undo = self._answering(view)
            agent = await self._app.revive(id)
        except BaseException:
            undo()
            with anyio.CancelScope(shield=True):
                if known is None:
                    self._views.pop(id, None)
                elif not self._peer.closed.is_set():
                    view = await self._watch(id, tell=False)
                    known.rejoin(view, self._answering(view) if is_own else undo)
                if not is_here:
                    await self._take_servers(id)
                    await sessions.release(id)
            raise
        if known is not None and known.agent is agent:
            known.rejoin(view, undo)
        else:
            self._open[id] = OpenSession(self._app, agent, view, is_own=is_own, undo=undo)

    async def _watch(self, id: SessionId, *, tell: bool) -> TreeView:
        """The client was told of the tree up to now, and hears of it from here on."""
        view = self._views[id] = self._view(id)
        view.hold()
        await self._app.host.sessions.writer.committed()
        await view.catch_up(await self._app.host.sessions.store.read_tree(id), tell=tell, room=self._peer.room)
        return view

    def _lock(self, id: SessionId) -> anyio.Lock:
        return self._changing.setdefault(id, anyio.Lock(fast_acquire=True))

    def _view(self, id: SessionId) -> TreeView:
        return TreeView(id, self._tell, subagents=self._subagents, terminals=self._terminals)

    async def set_mode(self, id: SessionId, mode: str) -> None:
        """The session has that permission. Raises: Failure, ConfigError, Unauthorized."""
        agent = self.get(id).agent
        permissions = self._app.host.find(PERMISSIONS)
        found: Preset | None = next((preset for preset, _, _ in _MODES if preset == mode), None)
        if permissions is None or found is None:
            known = ", ".join(preset for preset, _, _ in _MODES) if permissions is not None else "none"
            raise Failure(INVALID_PARAMS, f"there is no mode {mode!r}; there are {known}")
        await permissions.switch(agent, found).wait()

    def cancel(self, id: SessionId) -> None:
        """What goes on in that session, or in that child of one, ends. An id that nobody knows is passed over."""
        found = self._open.get(id)
        if found is not None:
            found.cancel()
        elif self._subagents:
            any(session.cancel_child(id) for session in self._open.values())

    async def close(self, id: SessionId) -> None:
        """See OpenSession.close; the client hears nothing more of it. Raises: Failure."""
        async with self._lock(id):
            await self.get(id).close()
            del self._open[id], self._views[id]

    async def close_all(self) -> None:
        """All are closed, side by side."""
        async with anyio.create_task_group() as group:
            for session in self._open.values():
                group.start_soon(session.close)

    async def _tell_output(self) -> None:
        """What calls say is told for as long as this runs, as fast as the client takes it and people read."""
        while True:
            await self._said.wait()
            self._said = anyio.Event()
            for view in self._views.values():
                view.tell_output()
            await self._peer.flushed()
            await anyio.sleep(_REPLACED_PAUSE_S if self._terminals is None else _PAUSE_S)

    def _tell(self, session: SessionId, update: Update) -> None:
        self._peer.notify("session/update", {"sessionId": session, "update": update})

    def _answering(self, view: TreeView) -> Undo:
        """The client is asked what agents of that tree need somebody's word for, until the result is called."""
        approvals = self._app.host.find(APPROVALS)
        if approvals is None:
            return Undo(lambda: None)
        answers = ClientAnswers(approvals, view, self._peer, self._start)
        undo = approvals.answered_by(answers, root=view.root)
        return Undo(lambda: (undo(), answers.leave()))

    def _modes(self, id: SessionId) -> JSONObject:
        permissions = self._app.host.find(PERMISSIONS)
        if permissions is None:
            return {}
        modes: list[JSON] = [{"id": preset, "name": name, "description": words} for preset, name, words in _MODES]
        return {"modes": {"currentModeId": permissions.preset(id), "availableModes": modes}}

    async def _bring_servers(self, root: SessionId, servers: Sequence[McpServer], folder: Path) -> None:
        if not servers:
            return
        found = self._app.host.find(TREE_SERVERS)
        if found is None:
            raise Failure(INVALID_PARAMS, "MCP servers cannot be used: the plugin mcp is switched off")
        configs: dict[str, ServerConfig] = {}
        for server in servers:
            name = _FORBIDDEN.sub("-", server.name).strip("-_")[:32] or "server"
            configs[name if name not in configs else f"{name[:29]}-{len(configs)}"] = ServerConfig(
                type=server.type,
                command=server.command,
                args=server.args,
                env={variable.name: variable.value for variable in server.env},
                url=server.url,
                headers={header.name: header.value for header in server.headers},
            )
        try:
            await found.bring(root, configs, cwd=folder)
        except ConfigError as error:
            raise Failure(INVALID_PARAMS, str(error), {"code": error.code}) from error

    async def _take_servers(self, root: SessionId) -> None:
        """What was brought for a session that did not come about ends again."""
        found = self._app.host.find(TREE_SERVERS)
        if found is not None:
            await found.take(root)


def _folder(params: NewParams) -> Path:
    if params.additional_directories:
        raise Failure(INVALID_PARAMS, "additional directories are not supported; a session has one folder")
    return absolute(params.cwd)
