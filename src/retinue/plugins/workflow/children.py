"""The agents of one workflow: ordinary one-shot children of the agent that called it, each with an id that follows from
the call and from what it is asked, so that the same script finds the same children again after a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from retinue.agent.agent import Agent
from retinue.agent.registry import Agents
from retinue.base.ids import SessionId, derived_id
from retinue.base.json import JSON, JSONObject, encode
from retinue.errors import RetinueError, SchemaError, is_outage
from retinue.model.content import Text
from retinue.plugins.workflow.process import AskAgent
from retinue.session.events import Payload, WorkflowAgentEnd, WorkflowAgentStart
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import Providers, RunRequest
from retinue.subagent.tools.foreground import finish_run
from retinue.subagent.tools.subagent import DelegationOptions
from retinue.tools.arguments import is_object
from retinue.tools.tool import CallKey

__all__ = ["Children", "Impossible", "Kinds", "Tally"]

Kinds = Callable[[Agent], Awaitable[Mapping[str, DelegationOptions]]]


class Impossible(Exception):
    """No child can be made of what the script asks: the script is wrong, not the child."""


@dataclass(slots=True)
class Tally:
    """What became of the children so far."""

    started: int = 0
    found: int = 0
    """Of these, how many an earlier run of the same call had started."""
    failures: list[str] = field(default_factory=list[str])
    """Why children gave nothing, one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """Makes them, waits for them, and logs both."""

    agents: Agents
    parent: Agent
    key: CallKey
    providers: Providers
    options: DelegationOptions
    """Of a child that names no kind."""
    kinds: Kinds | None
    room: anyio.Semaphore
    tally: Tally
    known: frozenset[SessionId]
    """Those that earlier runs of the same call had started."""
    asked: Counter[str] = field(default_factory=Counter[str])

    def identify(self, ask: AskAgent) -> SessionId:
        """The id of the child that is asked for now. Equal questions are told apart by their order."""
        question = encode([ask.prompt, ask.schema, ask.agent]).decode()
        self.asked[question] += 1
        return SessionId(derived_id("agent", *self.key.parts, question, self.asked[question]))

    async def value(self, ask: AskAgent, id: SessionId, phase: str | None) -> JSON:
        """What the child came to, for the script: its structured result or its words, or None if it failed.

        Raises: as `outcome`.
        """
        ended = await self.outcome(ask, id, phase)
        if ended.ending != "completed":
            return None
        return ended.text if ask.schema is None else ended.structured

    async def outcome(self, ask: AskAgent, id: SessionId, phase: str | None = None) -> Outcome:
        """How the child ended; its start and its end are logged, and it is in the tally.

        Raises: Impossible; StoreFailure. Cancelling stops the child and waits for it.
        """
        async with self.room:
            request = await self._request(ask, id)
            self.log(WorkflowAgentStart(index=self.key.index, id=id, label=ask.label, phase=phase))
            self.tally.started += 1
            self.tally.found += id in self.known
            ended = Outcome(ending="aborted")
            try:
                ended = await self._run(request, ask)
            finally:
                self.log(WorkflowAgentEnd(index=self.key.index, id=id, outcome=ended.ending, detail=ended.diagnostic))
            if ended.ending != "completed":
                self.tally.failures.append(f"{ask.label}: {ended.ending} {ended.diagnostic or ''}".strip())
            return ended

    async def _run(self, request: RunRequest, ask: AskAgent) -> Outcome:
        options = await self._options(ask)
        try:
            run = await self.providers.start(options.provider, request)
        except SchemaError as error:
            raise Impossible(f"agent {ask.label!r}: {error}") from error
        except RetinueError as error:
            if is_outage(error):
                raise
            raise Impossible(f"agent {ask.label!r} cannot be started: {error.code}: {error}") from error
        run_id = derived_id("run", run.id)
        # The whole workflow lends its parent's slot, so that no single child gives it back too early.
        ended = await finish_run(run, run_id=run_id, provider=options.provider, parent=self.parent)
        if ended.failures:
            return Outcome(ending="error", diagnostic=str(ended.failures[0]))
        return ended.outcome

    async def _options(self, ask: AskAgent) -> DelegationOptions:
        if ask.agent is None:
            return self.options
        kinds: Mapping[str, DelegationOptions] = {} if self.kinds is None else await self.kinds(self.parent)
        if ask.agent not in kinds:
            known = ", ".join(sorted(kinds)) or "none"
            raise Impossible(f"agent {ask.label!r}: there is no agent file {ask.agent!r}; there are: {known}")
        return kinds[ask.agent]

    async def _request(self, ask: AskAgent, id: SessionId) -> RunRequest:
        options = await self._options(ask)
        schema: JSONObject | None = None
        if ask.schema is not None:
            if not is_object(ask.schema):
                raise Impossible(f"agent {ask.label!r}: schema must be a JSON Schema of type object")
            schema = ask.schema
        return self.providers.inheriting(
            RunRequest(
                parent=self.parent,
                prompt=(Text(ask.prompt),),
                label=ask.label,
                key=self.key,
                child_id=id,
                options=options.options,
                max_depth=options.max_depth,
                tool_filter=options.tool_filter,
                persona=options.persona,
                output_schema=schema,
            )
        )

    def log(self, data: Payload) -> None:
        """The parent's log says so, unless the process is leaving it: then the call goes on with the next one."""
        if not self.agents.is_suspending and self.parent.session.failure is None:
            tx = self.parent.transaction()
            tx.append(self.parent.session, data)
            tx.submit()
