"""What all agents of a host share, and the chains that wrap what they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.headers import Headers
from retinue.base.bus import Bus
from retinue.base.chain import Chain
from retinue.base.json import JSONObject
from retinue.model.chunks import Sink
from retinue.model.client import Body, ModelClient, ModelRequest
from retinue.model.content import UserMessage
from retinue.model.retry import RetryPolicy
from retinue.prompt.sections import PromptRegistry
from retinue.session.table import Sessions
from retinue.tools.pipeline import ToolCallChain
from retinue.tools.registry import ToolRegistry
from retinue.tools.tool import Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = [
    "AgentOptions",
    "Attempt",
    "Chains",
    "Environment",
    "Finish",
    "PreStep",
    "Reject",
    "Start",
    "StepInput",
    "TurnStopping",
]


class AgentOptions(Struct, frozen=True, kw_only=True):
    """Where an agent's requests go. None = not set; an agent without provider or model fails its turn and says so."""

    provider: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    """Output tokens a request may use."""
    body: JSONObject = field(default_factory=lambda: JSONObject())
    """Extra fields of the request body."""

    def over(self, base: AgentOptions) -> AgentOptions:
        """These options where set, else those of `base`. Another provider or model drops the base's body fields."""
        if self.provider is None and self.model is None:
            return replace(base, max_tokens=self.max_tokens or base.max_tokens, body=base.body | self.body)
        return AgentOptions(
            provider=self.provider or base.provider,
            model=self.model or base.model,
            max_tokens=self.max_tokens or base.max_tokens,
            body=self.body,
        )


class StepInput(Struct, frozen=True, kw_only=True):
    """What is about to enter a step. A `pre_step` layer may pass it on with other messages, or none, or reject it."""

    agent: Agent
    turn: int
    step: int
    messages: tuple[UserMessage, ...]


class Reject(Struct, frozen=True):
    """The step does not happen and the turn ends as `blocked`."""

    reason: str


PreStep: TypeAlias = tuple[UserMessage, ...] | Reject


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt of one model request. A layer sees it right before it is sent and may watch or answer it."""

    agent: Agent
    client: ModelClient
    request: ModelRequest
    body: Body
    sink: Sink
    number: int
    """From 1 within a step."""


class TurnStopping(Struct, frozen=True, kw_only=True):
    """A turn owes nothing more. What a layer sends to the agent's next step meanwhile continues the turn."""

    agent: Agent
    turn: int


class Chains(Struct, frozen=True):
    """The four operations that can be wrapped."""

    pre_step: Chain[StepInput, PreStep] = field(default_factory=lambda: Chain[StepInput, PreStep]())
    model_request: Chain[Attempt, None] = field(default_factory=lambda: Chain[Attempt, None]())
    tool_call: ToolCallChain = field(default_factory=ToolCallChain)
    turn_stopping: Chain[TurnStopping, None] = field(default_factory=lambda: Chain[TurnStopping, None]())

    def child(self) -> Chains:
        """Chains for one agent, inside these."""
        return Chains(
            self.pre_step.child(), self.model_request.child(), self.tool_call.child(), self.turn_stopping.child()
        )


Start: TypeAlias = Callable[[Callable[[], Coroutine[object, object, None]]], object]
"""Runs a coroutine function as a task that the host owns and awaits. Synchronous."""
Finish: TypeAlias = Callable[[Tool | None, ToolContext, ToolResult], Awaitable[ToolResult]]
"""The last word on a result: bounds what is shown."""


async def _as_it_is(_tool: Tool | None, _context: ToolContext, result: ToolResult) -> ToolResult:
    return result


class Environment(Struct, frozen=True, kw_only=True):
    """Shared by all agents of a host. Agents read it; plugins fill its registries and chains through the host."""

    sessions: Sessions
    start: Start
    client: Callable[[str], ModelClient]
    """The client of a model provider, by name. Raises: ConfigError."""
    random: Callable[[], float]
    tools: ToolRegistry
    prompt: PromptRegistry
    bus: Bus = field(default_factory=Bus)
    chains: Chains = field(default_factory=Chains)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    finish: Finish = _as_it_is
    headers: Headers = field(default_factory=Headers)
    width: int = 10
    """Bodies of one step that overlap. Source: behaviour TD-03."""
    tool_order: tuple[str, ...] | None = None
    """Order of tools in requests; by name if None. Source: behaviour SP-10."""
    options: AgentOptions = AgentOptions()
    """For agents whose log and creator say nothing else."""
    cwd: Path = field(default_factory=Path.cwd)
    """Working folder of agents whose session names none."""
