"""The sessions that one client has open: each is one root agent, its view, and at most one prompt in flight."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence

import anyio
from msgspec import Raw

from retinue.acp.content import prompt_content
from retinue.acp.failures import as_failure
from retinue.acp.transcript import stop_reason
from retinue.acp.tree import TreeView
from retinue.acp.updates import SessionInfo, StopReason
from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.signals import MessageDiscarded
from retinue.base.frames import INTERNAL, INVALID_PARAMS, RESOURCE_NOT_FOUND, Failure
from retinue.base.ids import SessionId, new_message_id
from retinue.base.scope import Undo
from retinue.compose.app import App
from retinue.errors import RetinueError, error_record
from retinue.model.content import InputBlock
from retinue.plugins.mcp.trees import TREE_SERVERS
from retinue.session.title import brief_title, opening
from retinue.subagent.continuation import CONTINUATIONS
from retinue.subagent.outcome import accounting_end, turn_diagnostic, turn_ending
from retinue.subagent.providers.acp.external import DEPTH_VARIABLE

__all__ = ["OpenSession"]

_log = logging.getLogger("retinue")

LEAVE_S = 8.0
"""How long what runs may take to let go when a session is closed; its disposal waits on from there."""


class OpenSession:
    """One session of one client."""

    def __init__(self, app: App, agent: Agent, view: TreeView, *, is_own: bool, undo: Undo) -> None:
        """`is_own`: the agent was made for this client, and ends with it. `undo` is called when it has ended."""
        self._undo = undo
        self._app = app
        self._agent = agent
        self._view = view
        self.is_own = is_own
        self._prompting = False
        self._is_closing = False
        self._is_cancelled = False
        self._patience = anyio.CancelScope()
        """Ends the wait for those below the root."""

    @property
    def id(self) -> SessionId:
        """The root's."""
        return self._agent.id

    @property
    def agent(self) -> Agent:
        """The root."""
        return self._agent

    def rejoin(self, view: TreeView, undo: Undo) -> None:
        """The client has loaded the session once more; what is in flight goes on, and what is asked is asked anew."""
        self._undo()
        self._view, self._undo = view, undo

    # Working

    async def prompt(self, blocks: Sequence[Raw]) -> StopReason:
        """The root is at rest, and the client was told of everything up to there.

        What arrives while the root works belongs to the prompt. Cancelling ends the wait and nothing else. Raises:
        Failure for a prompt that cannot be read, for a second one at the same time, and for work that failed.
        """
        if self._is_closing:
            raise Failure(RESOURCE_NOT_FOUND, f"session {self.id!r} is being closed; load it afterwards")
        if self._prompting:
            raise Failure(INVALID_PARAMS, f"a prompt is in flight in session {self.id}; wait for its answer, or cancel")
        content = prompt_content(blocks)
        self._prompting, self._is_cancelled = True, False
        self._patience = anyio.CancelScope()
        try:
            return await self._work(content)
        except RetinueError as error:
            raise as_failure(error) from error
        finally:
            self._prompting = False

    async def _work(self, content: tuple[InputBlock, ...]) -> StopReason:
        if self._agent.is_closing:  # somebody else ended it, and its session goes on
            self._agent, self.is_own = await self._app.revive(self.id), True
        agent, id, dropped = self._agent, new_message_id(), anyio.Event()

        def discarded(event: MessageDiscarded) -> None:
            if event.row.id == id and event.reason != "replaced":
                dropped.set()

        is_first = agent.session.turns.last == 0
        first = agent.session.next_seq
        self._view.sent(id)
        with agent.bus.on(MessageDiscarded, discarded):
            sent = agent.send(content, id=id)
            await sent.wait()
            if is_first:
                self._view.say(self.id, SessionInfo(title=brief_title(opening(content))))
            await agent.wait_idle()
            await self._wait_below(agent)
        await agent.environment.sessions.writer.durable()
        if self._is_cancelled or dropped.is_set():
            return "cancelled"
        if agent.failure is not None:
            raise agent.failure
        end = accounting_end(agent.session.events, first=first)
        if end is None:
            return "cancelled" if agent.is_closing else "end_turn"
        reason = stop_reason(turn_ending(end))
        if reason is None:
            code = end.error.code if end.error is not None else "TURN_FAILED"
            raise Failure(INTERNAL, turn_diagnostic(end) or "the turn failed", {"code": code})
        return reason

    async def _wait_below(self, agent: Agent) -> None:
        """Nobody below the root is at work, if this process is itself a child: its client ends it with its answer.

        A cancelled prompt waits for nobody. Source: decision 0018.
        """
        continuations = self._app.host.find(CONTINUATIONS)
        if continuations is None or DEPTH_VARIABLE not in self._app.host.options.environ:
            return
        with self._patience:
            await continuations.wait_quiet(agent)

    # Stopping

    def cancel(self) -> None:
        """The root ends its turn as soon as it can and forgets what users had queued; its children go on."""
        self._is_cancelled = self._prompting
        self._patience.cancel()
        self._agent.cancel(Cause("user"))

    def cancel_child(self, id: SessionId) -> bool:
        """That child of the tree ends its turn, and its own children go on; False if it is none of this tree."""
        child = self._app.host.agents.get(id)
        if child is None or child.session.root != self.id or child is self._agent:
            return False
        continuations = self._app.host.find(CONTINUATIONS)
        if continuations is not None and continuations.resident(id) is child:
            continuations.interrupt(id, None)
        else:
            child.cancel(Cause("user"), keep_mailbox=True)
        return True

    async def close(self) -> None:
        """The root has stopped, everybody below it is released, and it is not live any more.

        Its queue is kept. An agent that another front end made is left alone. Shielded; what fails is logged.
        """
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            if self.is_own and self._app.host.agents.is_live(self._agent):
                self._agent.close_admission()
                self._agent.cancel(Cause("disposed"), keep_mailbox=True)
                with anyio.move_on_after(LEAVE_S):
                    await self._agent.wait_idle()
                await self._logged(self._app.close(self._agent))
            servers = self._app.host.find(TREE_SERVERS)
            if servers is not None and self.is_own:
                await self._logged(servers.take(self.id))
            self._undo()

    async def _logged(self, part: Awaitable[None]) -> None:
        try:
            await part
        except Exception as error:
            _log.warning("closing session %s: %s", self.id, error_record(error)[1])
