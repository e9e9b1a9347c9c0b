"""Ralph: rounds of fresh agents, one after the other, that work towards one objective: the tool `ralph`.

A round is an ordinary one-shot child that owes a structured result: whether to go on, and a text for the next round.
That text and what lies in the working folder are all that lasts. Ids follow from the call and the number of the round,
so after a crash a round that had ended is read from its log, and the one at work goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from retinue.agent.environment import AgentOptions
from retinue.base.ids import SessionId, derived_id
from retinue.base.json import JSONObject
from retinue.errors import ConfigError, ToolFailure
from retinue.host.host import Host
from retinue.plugins.ralph.wording import DESCRIPTION, GUIDANCE, ORDER, Ended, prompt, result
from retinue.plugins.workflow.call import open_run
from retinue.plugins.workflow.children import Children, Impossible
from retinue.plugins.workflow.process import AskAgent
from retinue.prompt.sections import Section
from retinue.subagent.provider import Provider, ProviderAdded
from retinue.subagent.tools.subagent import BACKENDS, Backends, DelegationOptions
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["OPTIONS", "RalphConfig", "plugin", "ralph_tool"]


class RalphConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the rounds of a call may use."""

    provider: str = "spawn"
    """Which provider runs the rounds: one with structured results, whose children do not know the conversation."""
    max_depth: Annotated[int, Meta(ge=0)] = 1
    """Greatest depth of a round; a root has depth 0. With 1 a round can start no rounds of its own."""
    max_rounds: Annotated[int, Meta(ge=1)] = 256
    """Rounds of one call; a call may ask for fewer."""
    hand_off_chars: Annotated[int, Meta(ge=1)] = 16_384
    """The longest text that a round hands on."""


OPTIONS = RalphConfig

_Count = Annotated[int, Meta(ge=1)]


class _Said(Struct, frozen=True):
    """What a round delivers. Source: behaviour WF-05."""

    status: Literal["continue", "complete", "blocked"]
    hand_off: str


@asynccontextmanager
async def plugin(host: Host, config: RalphConfig) -> AsyncGenerator[None]:
    """The tool and its guidance are there. Raises: MissingSeam without delegation, ConfigError for an unfit provider.

    A provider that comes later is refused then, if it is the configured one and unfit.
    """
    backends = host.require(BACKENDS, needed_by="ralph")

    def check(provider: Provider | None) -> None:
        if provider is not None and provider.name == config.provider:
            _check(provider)

    check(backends.providers.get(config.provider))
    with (
        host.bus.on(ProviderAdded, lambda event: check(event.provider)),
        host.tools.add(ralph_tool(host, config, backends)),
        host.prompt.add(Section(name="tool:ralph", order=ORDER, text=GUIDANCE, tool="ralph")),
    ):
        yield


def _check(provider: Provider) -> None:
    """Raises: ConfigError. Source: behaviour WF-06."""
    can = provider.capabilities
    if not (can.output_schema and can.depth_limit):
        why = "it cannot hold its children to a structured result and to a depth"
    elif can.inherits_context:
        why = "its children know the conversation, and each round must begin without one"
    else:
        return
    raise ConfigError(f"plugins.ralph.provider: {provider.name!r} cannot run rounds: {why}; use spawn")


def ralph_tool(host: Host, config: RalphConfig, backends: Backends) -> Tool:
    """`ralph`. All its calls overlap."""
    options = DelegationOptions(provider=config.provider, options=AgentOptions(), max_depth=config.max_depth)
    output_bytes = 4 * config.hand_off_chars + 10_000

    @tool(description=DESCRIPTION, safe=True, effect="rows", pooled=False, output_limit=output_bytes)
    async def ralph(
        ctx: ToolContext,
        objective: Annotated[str, "What is to be reached, and how to check that it is."],
        max_rounds: Annotated[_Count | None, "The most rounds; left out, or too many: as many as are allowed."] = None,
    ) -> ToolResult:
        if not objective.strip():
            raise ToolFailure("INVALID_ARGS", "objective: must say what is to be reached; it is empty")
        most = config.max_rounds if max_rounds is None else min(max_rounds, config.max_rounds)
        async with open_run(host, ctx, backends, options, name="ralph", at_once=1, kind="rounds of ralph") as run:
            ended = await _rounds(run.children, objective, most, _schema(config.hand_off_chars))
            run.outcome = "failed" if ended.outcome == "round-failed" else "completed"
            run.detail = ended.why or ended.outcome
        return result(ended, found=run.children.tally.found if run.n > 1 else None)

    return ralph


async def _rounds(children: Children, objective: str, most: int, schema: JSONObject) -> Ended:
    """How they ended. Raises: StoreFailure. Cancelling stops the round that is at work and waits for it."""
    hand_off = ""
    for n in range(1, most + 1):
        id = SessionId(derived_id("agent", *children.key.parts, "round", n))
        ask = AskAgent(id=n, prompt=prompt(objective, n, most, hand_off), label=f"round {n}", schema=schema)
        try:
            came = await children.outcome(ask, id)
            if came.ending != "completed":
                return Ended("round-failed", n, hand_off, f"{came.ending} {came.diagnostic or ''}".strip())
            said = msgspec.convert(came.structured, _Said)
        except (Impossible, msgspec.ValidationError) as error:
            return Ended("round-failed", n, hand_off, str(error))
        hand_off = said.hand_off
        if said.status != "continue":
            return Ended(said.status, n, hand_off)
    return Ended("budget-limited", most, hand_off)


def _schema(chars: int) -> JSONObject:
    return {
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["continue", "complete", "blocked"]},
            "hand_off": {"type": "string", "minLength": 1, "maxLength": chars, "description": "The text to hand on."},
        },
        "required": ["status", "hand_off"],
        "additionalProperties": False,
    }
