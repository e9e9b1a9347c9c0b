"""Counts what one process does, writes it down, and ends the process where the plan says so.

It stands around the store, the requests to the model and the bodies of tools, and changes nothing about them.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from retinue.agent.agent import Agent
from retinue.agent.environment import Attempt
from retinue.base.chain import Next
from retinue.base.json import JSONObject, encode
from retinue.host.host import Host
from retinue.session.rows import Batch
from retinue.session.store import Outcome, SessionStore
from retinue.testing.crashes.journal import Journal, Moment
from retinue.testing.crashes.points import KillPoint, Occasion
from retinue.testing.faults import FaultyStore
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import ToolContext, ToolResult

__all__ = ["Watch", "WatchedStore"]


class Watch:
    """One per process. `kill_at` is where it ends; None = nowhere."""

    def __init__(self, journal: Journal, life: int, kill_at: KillPoint | None) -> None:
        self._journal = journal
        self._life = life
        self._kill_at = kill_at
        self._seen: Counter[tuple[Occasion, str, str]] = Counter()

    def reach(
        self,
        occasion: Occasion,
        *,
        session: str = "",
        tool: str = "",
        session_id: str = "",
        call: str = "",
        arguments: str = "",
        effect: str = "",
        ids: Mapping[str, str] | None = None,
    ) -> None:
        """The process has come to the next such point. It does not return if the process ends here."""
        self._seen[occasion, session, tool] += 1
        point = KillPoint(occasion, self._seen[occasion, session, tool], session, tool)
        self._journal.write(
            Moment(
                life=self._life,
                point=point,
                session_id=session_id,
                call=call,
                arguments=arguments,
                effect=effect,
                ids=ids or {},
            )
        )
        if point == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self, host: Host) -> None:
        """Every later request and tool body of the host is seen, inside all layers that are there by now."""
        host.chains.model_request.wrap(self._ask)
        host.chains.tool_call.wrap(self._call)

    async def _ask(self, attempt: Attempt, inner: Next[Attempt, None]) -> None:
        agent = attempt.agent
        self.reach("at model request", session=_name(agent), session_id=agent.id)
        await inner(attempt)
        self.reach("at model reply", session=_name(agent), session_id=agent.id)

    async def _call(self, request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        tool, agent = request.tool, request.context.caller
        if not isinstance(agent, Agent):
            return await inner(request)

        async def body(context: ToolContext, arguments: JSONObject) -> ToolResult:
            # Not by its place in the log: a build that gives a call another key each time must not look harmless.
            call = f"turn {context.turn}, step {context.step}, {context.call_id}"
            told = encode(arguments).decode()

            def reach(occasion: Occasion, ids: Mapping[str, str]) -> None:
                self.reach(
                    occasion,
                    session=_name(agent),
                    tool=tool.name,
                    session_id=agent.id,
                    call=call,
                    arguments=told,
                    effect=tool.effect,
                    ids=ids,
                )

            reach("at the start of", {})
            result = await tool.body(context, arguments)
            reach("at the end of", {k: v for k, v in result.meta.items() if k.endswith("_id") and isinstance(v, str)})
            return result

        return await inner(msgspec.structs.replace(request, tool=dataclasses.replace(tool, body=body)))


class WatchedStore(FaultyStore):
    """A store whose commits are seen."""

    def __init__(self, inner: SessionStore, watch: Watch) -> None:
        super().__init__(inner)
        self._watch = watch

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """See SessionStore."""

        def committed(outcomes: Sequence[Outcome]) -> None:
            self._watch.reach("after commit")
            done(outcomes)

        self._watch.reach("before commit")
        super().begin(batches, committed)


def _name(agent: Agent) -> str:
    return agent.label or agent.id
