"""The Python interface: a running Retinue with the same composition as the command line."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from retinue.agent.agent import Agent
from retinue.agent.registry import Creation
from retinue.agent.signals import AgentDisposed, Stopped
from retinue.base.clock import Clock
from retinue.base.ids import MessageId, SessionId, new_session_id
from retinue.base.scope import Undo
from retinue.compose.build import build
from retinue.compose.config import Config, Overrides, load_config
from retinue.compose.dotenv import with_dotenv
from retinue.compose.post import Posted, keyed_id, post_message, post_order
from retinue.compose.run import Run
from retinue.compose.tree import TreeAccount
from retinue.errors import BadInput, IdConflict, SessionHeld
from retinue.host.host import Host
from retinue.model.client import ModelClient
from retinue.model.content import InputBlock, Text
from retinue.plugins.permissions import PERMISSIONS, Preset
from retinue.session.events import SandboxMode, SessionHeader, TurnEnd, TurnStart
from retinue.session.folds import descriptor
from retinue.session.rows import StoredRow
from retinue.session.session import Session
from retinue.session.store import SessionStore
from retinue.session.transaction import Transaction
from retinue.subagent.continuation import CONTINUATIONS
from retinue.tools.tool import Tool

__all__ = ["App", "open"]

GO_ON = "Go on with what you were doing: a turn of yours did not come to its end."


class App:
    """A running Retinue. Made by `open`."""

    def __init__(self, host: Host, config: Config, cwd: Path) -> None:
        self.host = host
        self.config = config
        self.cwd = cwd
        self._trees: dict[SessionId, tuple[TreeAccount, Undo]] = {}
        """The accounts of roots that have a run here, and how each is taken off their logs."""
        host.bus.on(AgentDisposed, lambda event: self._close_account(event.agent.id))

    async def agent(self, *, id: str | None = None, cwd: str | Path | None = None, label: str = "") -> Agent:
        """A new idle root agent with a durable session of its own.

        `cwd` is its working folder, absolute or relative to the app's. Raises: BadInput if that is no folder,
        AlreadyExists for a taken id. Dispose it with `close`, or leave it to the app.
        """
        folder = (self.cwd / cwd).absolute() if cwd is not None else self.cwd
        if not folder.is_dir():
            raise BadInput(f"the working folder {str(folder)!r} is not a folder")
        header = SessionHeader(
            id=SessionId(id) if id is not None else new_session_id(),
            created_at=self.host.clock.now_ms(),
            cwd=str(folder),
        )
        return await self.host.agents.create(
            Creation(header=header, options=self.host.options.options, label=label, commit=self._pin)
        )

    def _pin(self, tx: Transaction, agent: Agent) -> None:
        """The permission that was asked for is in the log of the new root, so that no resume changes it."""
        if self.config.permission is not None:
            tx.append(agent.session, SandboxMode(self.config.permission, "user"))

    async def run(self, task: str | Sequence[InputBlock], *, agent: Agent | None = None) -> Run:
        """The task is durable and the agent (a new one, if none is given) is at work on it.

        Raises: what `agent` and `Agent.send` raise.
        """
        agent = agent or await self.agent()
        tree = await self._tree(agent.id)
        self._keep(tree)
        first = agent.session.next_seq
        await agent.follow_up(task).wait()
        return self._started(agent, tree, first)

    def _started(self, agent: Agent, tree: TreeAccount, first: int) -> Run:
        return Run(agent, tree, first=first, continuations=self.host.find(CONTINUATIONS))

    async def resume(self, id: str, text: str | None = None, *, key: str | None = None) -> Run:
        """The stored root session is live and at work: on what it owes, and on `text` after that.

        Without `text`, a session that owes nothing is told to go on if its last turn did not come to its end, and is
        left alone if it did. With `key`, the same text again is not sent again: the answer is the run of the first.
        Raises: SessionNotFound, BadInput for a session that is no root, SessionHeld, IdConflict for a key that was
        used with another text.
        """
        if key is not None and text is None:
            raise BadInput("a key makes sending a text repeatable; give the text as well")
        known = await self.root(id)
        message = keyed_id("message", known, key)
        agent, owed = await self._bring_back(known, permission=self.config.permission)
        tree = await self._tree(known)
        session = agent.session
        first = _newest_turn(session)
        if text is not None:
            first = session.next_seq if session.turns.open is None else first
            earlier = await self._sent(known, message, text) if key is not None else None
            if earlier is not None and earlier.state != "pending":
                return self._started(agent, tree, _start_of(session, earlier.turn))
            await agent.send(text, id=message).wait()
        elif not owed and agent.status == "idle" and session.turns.last and not _is_complete(session):
            await agent.follow_up(GO_ON).wait()
        return self._started(agent, tree, first)

    async def revive(self, id: SessionId) -> Agent:
        """The agent of the stored root session is live and goes on with what it owes, and with nothing else.

        It keeps its permission, whatever the configuration asks for. Raises: SessionNotFound, BadInput for a session
        that is no root, SessionHeld.
        """
        agent, _ = await self._bring_back(await self.root(id), permission=None)
        return agent

    async def root(self, id: str) -> SessionId:
        """The stored root session of that id or unique prefix. Raises: SessionNotFound, BadInput for a child."""
        known = await self.host.sessions.store.resolve(id)
        summary = await self.host.sessions.store.summary(known)
        if summary is not None and summary.header.origin is not None:
            parent = summary.header.parent_session
            raise BadInput(f"session {known!r} is a child of {parent!r}; resume its root instead")
        return known

    async def _bring_back(self, id: SessionId, *, permission: Preset | None) -> tuple[Agent, bool]:
        """The root is live with everybody below it who owes work; and whether it was at work at once.

        It has that permission from its first step on, or, for None, keeps its own.
        """
        continuations = self.host.find(CONTINUATIONS)
        if continuations is not None:
            await continuations.prepare(id)
        tree = await self._tree(id)
        agent = await self.host.agents.resume(id, options=self.host.options.options)
        self._keep(tree)
        owed = agent.status == "running"  # asked before its turn, which goes on, can end
        permissions = self.host.find(PERMISSIONS)
        if permissions is not None and permission is not None and permissions.override(agent.id) != permission:
            permissions.switch(agent, permission)
        if continuations is not None:
            await continuations.recover(agent)
        return agent, owed

    async def _sent(self, id: SessionId, message: MessageId, text: str) -> StoredRow | None:
        """The row of an earlier send with that message id. Raises: IdConflict if it said something else."""
        rows = await self.host.sessions.store.read_rows(id)
        row = next((row for row in rows if row.delivery.id == message), None)
        if row is not None and row.delivery.message.content != (Text(text),):
            raise IdConflict(f"the key was used before in session {id!r}, with another text; use a new key")
        return row

    async def send(self, id: str, text: str, *, key: str | None = None) -> Posted:
        """The text is pending for any stored session that takes messages, whichever process drives it.

        `id` may be a unique prefix. Whoever drives the tree reads it soon, and a child that had settled comes back;
        with nobody (`driver` is None) it is read at the next resume. Raises: SessionNotFound; BadInput for an empty
        text or a session that was a single run; IdConflict for a key that was used with another text.
        """
        return await post_message(self.host.sessions, id, text, key=key)

    async def interrupt(self, id: str, *, key: str | None = None) -> Posted:
        """The turn that is open in that session ends as soon as it can; its queue is parked, its children go on.

        With nobody to drive it, the turn ends when the tree is resumed, before it does anything. Raises:
        SessionNotFound.
        """
        return await post_order(self.host.sessions, "interrupt", id, key=key)

    async def stop(self, id: str, *, key: str | None = None) -> Posted:
        """The session and everything below it end, and what users and parents sent there and nobody read is withdrawn.

        Asked for, if another process or this one drives the tree; done when this returns, if nobody does. Parents are
        told once of each child. Raises: SessionNotFound, CorruptSession, ActivationTeardownFailed.
        """
        posted = await post_order(self.host.sessions, "stop", id, key=key)
        if posted.driver is None and posted.is_pending:
            try:
                await self._stop_stored(posted)
            except SessionHeld:  # somebody was faster, and has read the order with everything else
                return replace(posted, driver=await self.host.sessions.store.ring(posted.root))
        return posted

    async def _stop_stored(self, posted: Posted) -> None:
        stored = await self.host.sessions.store.read(posted.session_id)
        made = descriptor(stored.header, stored.events)
        continuations = self.host.find(CONTINUATIONS)
        if continuations is not None and made is not None and made.mode == "continuable":
            await continuations.stop_stored(posted.session_id, posted.root)
            return
        stopped = anyio.Event()

        def over(event: Stopped) -> None:
            if event.agent.id == posted.session_id:
                stopped.set()

        with self.host.bus.on(Stopped, over):
            agent = await self.host.agents.resume(posted.session_id)
            await stopped.wait()
        await self.host.agents.dispose(agent)

    async def close(self, agent: Agent) -> None:
        """The agent is disposed; its session stays and can be resumed."""
        await self.host.agents.dispose(agent)

    async def _tree(self, root: SessionId) -> TreeAccount:
        """The account that the root has, or a new one of what is stored."""
        if root in self._trees:
            return self._trees[root][0]
        tree = TreeAccount(root)
        await tree.load(self.host.sessions.store)
        return tree

    def _keep(self, tree: TreeAccount) -> None:
        """The account follows the logs of its tree until the root is disposed."""
        if tree.root not in self._trees:
            self._trees[tree.root] = tree, self.host.sessions.observe(tree.observe)

    def _close_account(self, root: SessionId) -> None:
        _, undo = self._trees.pop(root, (None, None))
        if undo is not None:
            undo()


@asynccontextmanager
async def open(
    model: str | None = None,
    *,
    base_url: str | None = None,
    cwd: str | Path | None = None,
    home: str | Path | None = None,
    permission: str | None = None,
    settings: Sequence[str] = (),
    config_file: str | Path | None = None,
    config: Config | None = None,
    tools: Sequence[Tool] = (),
    client: ModelClient | None = None,
    store: SessionStore | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[App]:
    """A running Retinue, configured like the command line: file, environment, then these arguments.

    `model` is `PROVIDER:NAME`; `settings` are `path.to.key=value`; `config`, if given, replaces all of that. `tools`
    are offered to every agent besides the configured ones. `client` replaces the configured model provider, for tests
    and for models of your own. Leaving stops what runs; turns stay open in their logs and go on after `App.resume`.
    Raises: ConfigError, ModelNotConfigured, MissingSeam, StoreFailure.
    """
    folder = _absolute(cwd)
    variables = with_dotenv(os.environ if environ is None else environ, folder)
    if config is None:
        overrides = Overrides(
            config_file=Path(config_file) if config_file is not None else None,
            model=model,
            base_url=base_url,
            home=str(home) if home is not None else None,
            permission=permission,
            settings=settings,
        )
        config = load_config(overrides, cwd=folder, environ=variables)
    clients = (client,) if client is not None else ()
    async with build(config, environ=variables, cwd=folder, clients=clients, store=store, clock=clock) as host:
        with ExitStack() as stack:
            for tool in tools:
                stack.enter_context(host.tools.add(tool))
            yield App(host, config, folder)


def _absolute(folder: str | Path | None) -> Path:
    return Path.cwd() if folder is None else Path(folder).absolute()


def _newest_turn(session: Session) -> int:
    """The seq at which the newest turn starts; the end of the log if there is none."""
    starts = (event.seq for event in reversed(session.events) if isinstance(event.data, TurnStart))
    return next(starts, session.next_seq)


def _start_of(session: Session, turn: int | None) -> int:
    """The seq at which that turn starts; the end of the log if it never did."""
    starts = (e.seq for e in session.events if isinstance(e.data, TurnStart) and e.data.turn == turn)
    return next(starts, session.next_seq)


def _is_complete(session: Session) -> bool:
    """The newest turn came to its natural end."""
    ends = (event.data for event in reversed(session.events) if isinstance(event.data, TurnEnd))
    end = next(ends, None)
    return end is not None and end.reason == "completed"
