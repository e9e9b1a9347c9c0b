"""What a host can do with agents: start, message, list, interrupt, stop, wait, read. Knows nothing of the protocol.

Every call may be repeated: the wrong answer to a lost reply would be a second agent, or a settlement that nobody reads.
So starting and sending take keys, and reading moves nothing: the host says from where on it wants to read.
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.base.ids import MessageId, SessionId, derived_id
from retinue.compose.app import App
from retinue.errors import AlreadyExists, BadInput, DuplicateChild, IdConflict, SessionNotFound
from retinue.mcp.desks import Desks
from retinue.mcp.kinds import options_of
from retinue.mcp.views import AgentView, Notice, notice_of, spoken, view_of
from retinue.model.content import Text, text_of
from retinue.session.folds import descriptor
from retinue.session.store import SessionSummary
from retinue.subagent.child import prompt_id
from retinue.subagent.continuation import CONTINUATIONS
from retinue.subagent.outcome import last_words
from retinue.subagent.provider import RunRequest
from retinue.subagent.words import bounded_words, closing_path

__all__ = ["NOTICES_AT_ONCE", "Delegation", "Notices"]

NOTICES_AT_ONCE = 50
"""How many notices one reading gives."""

_LOOK_S, _TAKE_UP_S = 0.2, 2.0
_SHOWN_CHARS = 80
"""So much of a wrong id or place is repeated."""
_PLACES = re.compile(r"([1-9][0-9]{0,8}:[0-9]{1,18}( |$))*")


class Notices(Struct, frozen=True, kw_only=True):
    """Some notices, oldest first, and where to go on reading."""

    notices: list[Notice]
    next: str
    has_more: bool


class Delegation:
    """Delegation from one workspace. Ids are those of agents below its desks; a unique beginning is enough."""

    def __init__(self, app: App, desks: Desks) -> None:
        """Raises: MissingSeam if the configuration leaves delegation out."""
        self._app = app
        self._desks = desks
        self._store = app.host.sessions.store
        self._listed_before: dict[SessionId, tuple[tuple[int, bool], AgentView | None]] = {}
        """How agents stood when they were listed last, with the length of the log and whether it was at work."""
        self._continuations = app.host.require(CONTINUATIONS, needed_by="retinue mcp")

    # Starting and sending

    async def start(
        self, prompt: str, *, label: str, kind: str | None = None, folder: str | None = None, key: str | None = None
    ) -> SessionId:
        """The id of an agent whose mailbox durably holds the prompt, and that is at work.

        The same key again is the same agent. Raises: BadInput; IdConflict for a key that was used for something else;
        what `Continuations.start` raises. Cancelled before the agent is accepted it leaves nothing behind.
        """
        if not prompt.strip():
            raise BadInput("the prompt must say what to do; it is empty")
        if key is not None and not key.strip():
            raise BadInput("the key is empty; give one that says which start it is, or none")
        cwd = self._inside(folder)
        id = SessionId(derived_id("agent", "mcp", str(self._desks.folder), key or uuid4().hex))
        if await self._store.summary(id) is not None:
            return await self._started_before(id, prompt, cwd)
        desk = await self._desks.own()
        options = await options_of(self._app, desk, kind)
        request = RunRequest(
            parent=desk,
            prompt=(Text(prompt),),
            label=label,
            child_id=id,
            cwd=cwd,
            options=options.options,
            max_depth=options.max_depth,
            tool_filter=options.tool_filter,
            persona=options.persona,
        )
        try:
            accepted = await self._continuations.start(options.provider, request)
        except (DuplicateChild, AlreadyExists):  # the same key meanwhile, from here or from another process
            return await self._started_before(id, prompt, cwd)
        return accepted.child_id

    def _inside(self, folder: str | None) -> Path:
        """The folder of an agent. Raises: BadInput for one that is none, or lies outside of the workspace."""
        whole = self._desks.folder
        if folder is not None and "\0" in folder:
            raise BadInput(f"the working folder {folder!r} is none: a path has no zero bytes")
        path = whole if folder is None else (whole / folder).resolve()
        if not path.is_dir():
            raise BadInput(f"the working folder {str(path)!r} is not a folder")
        if not path.is_relative_to(whole):
            raise BadInput(f"the working folder {str(path)!r} lies outside of {str(whole)!r}, which is served here")
        return path

    async def _started_before(self, id: SessionId, prompt: str, cwd: Path) -> SessionId:
        agent = await self._found(id)
        first = prompt_id(id)
        for row in await self._store.read_rows(id):
            if row.delivery.id == first and text_of(row.delivery.message.content) != prompt:
                raise IdConflict(f"the key was used before for agent {id!r}, with another prompt; use a new key")
        if agent.header.cwd != str(cwd):
            raise IdConflict(f"the key was used before for agent {id!r}, in folder {agent.header.cwd!r}; use a new key")
        return id

    async def send(self, id: str, text: str, *, key: str | None = None) -> tuple[SessionId, MessageId]:
        """The text is the agent's next turn, durably; one that had ended starts again.

        The same key again sends nothing. Raises: SessionNotFound, BadInput, IdConflict.
        """
        agent = await self._found(id)
        posted = await self._app.send(agent.header.id, text, key=key)
        return posted.session_id, posted.message_id

    # Stopping

    async def interrupt(self, id: str, *, key: str | None = None) -> SessionId:
        """The agent's open turn ends as soon as it can; its queue is parked. Raises: SessionNotFound, BadInput."""
        agent = await self._found(id)
        return (await self._app.interrupt(agent.header.id, key=key)).session_id

    async def stop(self, id: str, *, key: str | None = None) -> SessionId:
        """The agent and everybody below it were told to end. Raises: SessionNotFound, BadInput."""
        agent = await self._found(id)
        return (await self._app.stop(agent.header.id, key=key)).session_id

    # Reading

    async def agents(self, under: str | None = None) -> list[AgentView]:
        """The agents of the workspace, or those that one of them has started, oldest first. Raises: SessionNotFound."""
        above = await self._desks.ids() if under is None else [(await self._found(under)).header.id]
        found: list[AgentView] = []
        for id in above:
            children = await self._store.children(id)
            owing = set(await self._store.owing(children[0].root)) if children else set[SessionId]()
            for child in children:
                view = await self._listed(child, is_working=child.header.id in owing)
                if view is not None:
                    found.append(view)
        return found

    async def wait(self, id: str, timeout_s: float) -> AgentView:
        """The agent, once it has ended, with its last words; or as it stands after `timeout_s`.

        Raises: SessionNotFound, BadInput for an agent that was a single run.
        """
        agent = await self._found(id)
        with anyio.move_on_after(timeout_s):
            while await self._is_working(agent):
                await self._desks.drive(agent.root)  # whoever drove it may have died
                with anyio.move_on_after(_TAKE_UP_S):
                    await self._wait_ended(agent)
        view = await self._view(agent.header.id, is_working=await self._is_working(agent), with_text=True)
        if view is None:
            raise BadInput(f"agent {agent.header.id!r} was a single run; wait for the one that started it")
        return view

    async def _wait_ended(self, agent: SessionSummary) -> None:
        while True:
            await self._continuations.wait_settled(agent.header.id)
            if not await self._is_working(agent):
                return
            await anyio.sleep(_LOOK_S)  # another process may drive it, and tells nobody here

    async def last_words(self, id: str) -> str:
        """The newest words of the agent, whole, whether or not it has ended. Raises: SessionNotFound."""
        stored = await self._store.read((await self._found(id)).header.id)
        return spoken(last_words(stored.events, first=stored.header.seed_length or 0))

    async def notices(self, since: str | None = None, timeout_s: float = 0.0) -> Notices:
        """What the agents of the workspace have sent, oldest first, from `since` on: a `next` of an earlier reading.

        If there is nothing, it waits `timeout_s` for something. Reading again from the same place gives the same again.
        Raises: BadInput for a `since` that no reading gave.
        """
        seen = _places(since)
        with anyio.move_on_after(timeout_s):
            mark = await self._mark()  # before reading, so that what comes meanwhile is a change
            while not (found := await self._notices(seen)).notices:
                before = mark
                while mark == before:
                    await anyio.sleep(_LOOK_S)
                    mark = await self._mark()
            return found
        return await self._notices(seen)

    async def _mark(self) -> list[tuple[int, int]]:
        """Something that changes whenever a desk gets a notice: cheaper to ask for than its rows."""
        found = [await self._store.summary(id) for id in await self._desks.ids()]
        return [(summary.events, summary.pending) for summary in found if summary is not None]

    async def _notices(self, seen: dict[int, int]) -> Notices:
        notices: list[Notice] = []
        places = dict(seen)
        has_more = False
        desks = await self._desks.ids()
        if seen.keys() - set(range(1, len(desks) + 1)):
            raise _no_place(seen)
        for number, id in enumerate(desks, 1):
            rows = await self._store.read_rows(id)
            if seen.get(number, -1) > (rows[-1].order if rows else -1):
                raise _no_place(seen)
            for row in rows if number not in seen else (row for row in rows if row.order > seen[number]):
                notice = notice_of(row)
                has_more = notice is not None and len(notices) == NOTICES_AT_ONCE
                if has_more:
                    break
                places[number] = row.order
                if notice is not None:
                    notices.append(notice)
            if has_more:
                break
        notices.sort(key=lambda notice: notice.at_ms)
        return Notices(notices=notices, next=_place(places), has_more=has_more)

    # Finding

    async def _found(self, id: str) -> SessionSummary:
        """The agent of that id; this process drives its desk, unless another one does. Raises: SessionNotFound."""
        try:
            summary = await self._store.summary(await self._store.resolve(id))
        except SessionNotFound:
            summary = None
        if summary is None or summary.header.origin is None or summary.root not in await self._desks.ids():
            raise SessionNotFound(
                f"there is no agent {id[:_SHOWN_CHARS]!r} in this workspace; list the agents to see which there are"
            )
        await self._desks.drive(summary.root)
        return summary

    async def _is_working(self, agent: SessionSummary) -> bool:
        return agent.header.id in await self._store.owing(agent.root)

    async def _listed(self, child: SessionSummary, *, is_working: bool) -> AgentView | None:
        """As `_view`, but where nothing has changed the log is not read again."""
        id, standing = child.header.id, (child.events, is_working)
        before = self._listed_before.get(id)
        if before is not None and before[0] == standing:
            return before[1]
        view = await self._view(id, is_working=is_working)
        self._listed_before[id] = (standing, view)
        return view

    async def _view(self, id: SessionId, *, is_working: bool, with_text: bool = False) -> AgentView | None:
        """How the agent stands; None for a single run."""
        stored = await self._store.read(id)
        made = descriptor(stored.header, stored.events)
        if made is None or made.mode != "continuable":
            return None
        view = view_of(stored, is_working=is_working, with_text=with_text)
        if not isinstance(view.text, str):
            return view
        path = closing_path(self._app.host.options.home, view.agent_id, view.settlements)
        return replace(view, text=await bounded_words(view.text, path))


def _places(since: str | None) -> dict[int, int]:
    if since is not None and _PLACES.fullmatch(since) is None:
        raise BadInput(f"since must be the `next` of an earlier reading, not {since[:_SHOWN_CHARS]!r}")
    return {int(number): int(order) for number, order in (part.split(":") for part in (since or "").split())}


def _place(places: dict[int, int]) -> str:
    return " ".join(f"{number}:{order}" for number, order in sorted(places.items()))


def _no_place(places: dict[int, int]) -> BadInput:
    return BadInput(
        f"since is {_place(places)[:_SHOWN_CHARS]!r}, and no reading of the agents stored here gave that; leave it out"
        " to read from the beginning"
    )
