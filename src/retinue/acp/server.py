"""An agent of the Agent Client Protocol: the methods of one connection, and what becomes of it when the client goes.

Source: https://agentclientprotocol.com, protocol version 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct

from retinue import __version__
from retinue.acp.params import (
    AuthenticateParams,
    CancelParams,
    CloseParams,
    InitializeParams,
    ListParams,
    LoadParams,
    NewParams,
    PromptParams,
    SetModeParams,
)
from retinue.acp.wire import VERSION
from retinue.base.frames import INVALID_PARAMS, INVALID_REQUEST, RESOURCE_NOT_FOUND, UNKNOWN_METHOD, Failure
from retinue.base.ids import SessionId, new_session_id
from retinue.base.json import JSON, JSONObject
from retinue.base.jsonrpc import Peer
from retinue.base.lines import MAX_LINE_BYTES, Pipe
from retinue.errors import ConfigError, ModelNotConfigured, RetinueError

if TYPE_CHECKING:  # all that is needed to answer `initialize` is imported above
    from retinue.acp.outputs import TerminalKey
    from retinue.acp.sessions import OpenSessions
    from retinue.acp.source import Source

__all__ = ["Server"]

P = TypeVar("P", bound=Struct)

_AUTH_METHOD: JSONObject = {
    "id": "environment",
    "name": "Set a model and its key",
    "description": "Set RETINUE_MODEL to PROVIDER:NAME and the provider's key, such as DEEPSEEK_API_KEY, in the "
    "environment of `retinue acp` or in a .env file in its folder; then authenticate again.",
}


@dataclass(frozen=True, slots=True)
class _Method:
    params: type[Struct]
    call: Callable[[Any], Awaitable[JSON]]
    is_request: bool = True


class Server:
    """One connection with one client."""

    def __init__(
        self,
        pipe: Pipe,
        source: Source,
        *,
        new_id: Callable[[], SessionId] = new_session_id,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._source = source
        self._new_id = new_id
        self._peer = Peer(pipe, self._handle, on_cancel=self._gave_up, max_line_bytes=max_line_bytes)
        self._is_initialized = False
        self._subagents = False
        self._terminals: TerminalKey | None = None
        self._sessions: OpenSessions | None = None
        self._opening = anyio.Lock(fast_acquire=True)
        self._asking: TaskGroup | None = None
        """Owns the questions to the client."""
        self._undo = ExitStack()
        self._methods: Mapping[str, _Method] = {
            "authenticate": _Method(AuthenticateParams, self._authenticate),
            "session/new": _Method(NewParams, self._new),
            "session/load": _Method(LoadParams, partial(self._load, tell=True)),
            "session/resume": _Method(LoadParams, partial(self._load, tell=False)),
            "session/list": _Method(ListParams, self._list),
            "session/close": _Method(CloseParams, self._close),
            "session/set_mode": _Method(SetModeParams, self._set_mode),
            "session/prompt": _Method(PromptParams, self._prompt),
            "session/cancel": _Method(CancelParams, self._cancel, is_request=False),
        }

    async def serve(self) -> None:
        """The client has gone, and with it everything that was made for it: roots cancelled, children released.

        Cancelled, it leaves all of that to its owner: nothing is closed and every turn stays open. Source: decision
        0015.
        """
        async with anyio.create_task_group() as self._asking:
            with self._undo:
                await self._peer.run()
                if self._sessions is not None:
                    await self._sessions.close_all()
            self._asking.cancel_scope.cancel()

    # Frames

    async def _handle(self, name: str, params: Raw, is_request: bool) -> JSON:
        if name == "initialize" and is_request:
            return self._initialize(_read(InitializeParams, params))
        method = self._methods.get(name)
        if method is None or method.is_request != is_request:
            raise Failure(UNKNOWN_METHOD, f"there is no method {name!r} here")
        if not self._is_initialized:
            raise Failure(INVALID_REQUEST, "the connection is not initialized")
        try:
            return await method.call(_read(method.params, params))
        except RetinueError as error:
            from retinue.acp.failures import as_failure

            raise as_failure(error) from error

    def _gave_up(self, name: str, params: Raw) -> None:
        """The client waits no more for that request: a prompt is cancelled, everything else has ended by itself."""
        if name == "session/prompt" and self._sessions is not None:
            self._sessions.cancel(SessionId(_read(PromptParams, params).session_id))

    # Methods

    def _initialize(self, params: InitializeParams) -> JSON:
        self._is_initialized = True
        match params.client_capabilities:
            case {"subagents": dict()}:
                self._subagents = True
            case _:
                self._subagents = False
        self._terminals = _terminals(params.client_capabilities)
        images = False
        methods: list[JSON] = []
        try:
            images = self._source.examine().images
        except ModelNotConfigured:
            methods = [_AUTH_METHOD]
        except ConfigError:
            pass  # whoever asks for a session is told
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "retinue", "title": "Retinue", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": images, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": find_spec("mcp") is not None, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": methods,
        }

    async def _authenticate(self, params: AuthenticateParams) -> JSON:
        if params.method_id != _AUTH_METHOD["id"]:
            raise Failure(INVALID_PARAMS, f"there is no authentication method {params.method_id!r}")
        self._source.examine()
        return {}

    async def _open(self) -> OpenSessions:
        async with self._opening:
            if self._sessions is None:
                app = await self._source.app()
                from retinue.acp.sessions import OpenSessions

                assert self._asking is not None
                self._sessions = OpenSessions(
                    app, self._peer, self._asking.start_soon, subagents=self._subagents, terminals=self._terminals
                )
                self._undo.enter_context(self._sessions.following())
            return self._sessions

    async def _new(self, params: NewParams) -> JSON:
        sessions = await self._open()
        return await sessions.new(self._new_id(), params)

    async def _load(self, params: LoadParams, *, tell: bool) -> JSON:
        sessions = await self._open()
        return await sessions.load(params, tell=tell)

    async def _list(self, params: ListParams) -> JSON:
        from retinue.acp.listing import list_sessions

        async with self._source.reading() as store:
            return await list_sessions(store, params, elsewhere=self._source.cwd)

    async def _close(self, params: CloseParams) -> JSON:
        sessions = await self._open()
        await sessions.close(SessionId(params.session_id))
        return {}

    async def _set_mode(self, params: SetModeParams) -> JSON:
        sessions = await self._open()
        await sessions.set_mode(SessionId(params.session_id), params.mode_id)
        return {}

    async def _prompt(self, params: PromptParams) -> JSON:
        if self._sessions is None:
            raise Failure(RESOURCE_NOT_FOUND, f"session {params.session_id!r} is not open here; load it")
        return {"stopReason": await self._sessions.get(SessionId(params.session_id)).prompt(params.prompt)}

    async def _cancel(self, params: CancelParams) -> JSON:
        if self._sessions is not None:
            self._sessions.cancel(SessionId(params.session_id))
        return None


def _terminals(capabilities: JSON) -> TerminalKey | None:
    """How the client wants to see the commands that we run, if it said that it can. Source: decision 0019."""
    match capabilities:
        case {"_meta": {"terminal_output": True}}:
            return "terminal_output"
        case {"_meta": {"terminal_output_delta": True}}:
            return "terminal_output_delta"
        case _:
            return None


def _read(struct: type[P], params: Raw) -> P:
    data = b"{}" if bytes(params) == b"null" else params
    try:
        return msgspec.json.decode(data, type=struct)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Failure(INVALID_PARAMS, f"the parameters cannot be read: {error}") from error
