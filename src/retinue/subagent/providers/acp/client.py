"""External agents in the place of a model: a request is one prompt to a program that lives for that prompt alone.

So the loop, the log, the mailbox, settlement and recovery are those of every other child. Source: decision 0018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from anyio.abc import TaskGroup
from msgspec import Raw

from retinue.agent.registry import Agents
from retinue.base.frames import UNKNOWN_METHOD, Failure
from retinue.base.json import JSON
from retinue.base.jsonrpc import Handler
from retinue.base.pipe import Groups
from retinue.errors import ExternalAgentFailed
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.content import Message
from retinue.subagent.providers.acp.exchange import Exchange, initialize
from retinue.subagent.providers.acp.external import DEPTH_VARIABLE, ExternalAgent
from retinue.subagent.providers.acp.program import Launch, Program, run_program
from retinue.subagent.providers.acp.wire import Capabilities
from retinue.subagent.resident import Keyed

__all__ = ["PROVIDER", "AcpClient"]

PROVIDER = "acp"
"""The model provider that stands for external agents; their names are its models."""


class AcpClient:
    """See ModelClient. Programs run in `group`, whose owner waits for them; each prompt starts one and ends it."""

    provider = PROVIDER

    def __init__(
        self, agents: Agents, known: Mapping[str, ExternalAgent], group: TaskGroup, *, groups: Groups | None = None
    ) -> None:
        self._agents = agents
        self._known = known
        self._group = group
        self._groups = groups
        self._asking = Keyed()
        self._capabilities: dict[str, Capabilities] = {}

    def context_window(self, model: str) -> int | None:
        """Unknown: the program looks after that itself."""
        return None

    def transcript(self) -> Transcript:
        """Nothing is kept: the program has the conversation."""
        return _Elsewhere()

    def encode(self, request: ModelRequest) -> Body:
        """No bytes: what the program is given follows from the log at the time when it is ready."""
        return ()

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """What the child is owed was given to the program, what that said went to `sink`, and the program has ended.

        Raises: ExternalAgentFailed. Cancelling tells the program, waits a little for what it still says, and ends it.
        """
        known = self._agent(request.model)
        agent = self._agents.get(request.session_id)
        if agent is None:
            raise ExternalAgentFailed(f"agent {known.name!r} works for a child that lives here, and for nobody else")
        exchange = Exchange(agent, known, sink)
        program = await self._start(known, exchange.handle, agent.cwd, depth=agent.depth)
        try:
            await exchange.run(program)
        finally:
            await program.aclose()

    async def aclose(self) -> None:
        """Nothing is open: programs end with their prompts."""

    async def capabilities(self, name: str, cwd: Path) -> Capabilities:
        """What the agent says it can do; its program is started once to be asked. Raises: ExternalAgentFailed."""
        async with self._asking.hold(name):
            found = self._capabilities.get(name)
            if found is None:
                known = self._agent(name)
                program = await self._start(known, _refuse, cwd, depth=0)
                try:
                    found = self._capabilities[name] = await initialize(program, known)
                finally:
                    await program.aclose()
            return found

    def _agent(self, name: str) -> ExternalAgent:
        known = self._known.get(name)
        if known is None:
            names = ", ".join(sorted(self._known)) or "none"
            raise ExternalAgentFailed(f"there is no external agent {name!r} here; configured: {names}")
        return known

    async def _start(self, known: ExternalAgent, handler: Handler, cwd: Path, *, depth: int) -> Program:
        launch = Launch(
            name=known.name,
            argv=known.argv,
            cwd=known.place(cwd),
            env={**known.env, DEPTH_VARIABLE: str(depth + known.depth)},
            secrets=known.secrets,
            groups=self._groups,
            grace_s=known.end_grace_s,
            wait_leaving=self._agents.wait_suspending,
        )
        return await self._group.start(run_program, launch, handler)


class _Elsewhere:
    def extend(self, messages: Sequence[Message]) -> None:
        """See Transcript."""


async def _refuse(method: str, _params: Raw, _is_request: bool) -> JSON:
    raise Failure(UNKNOWN_METHOD, f"{method} is not supported by this client")
