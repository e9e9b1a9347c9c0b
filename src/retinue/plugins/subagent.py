"""Delegation as a plugin: the providers of children that ship with Retinue, and one tool per configured instance."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.agent.signals import StopAsked, Stopped
from retinue.base.scope import Undo
from retinue.errors import ConfigError
from retinue.host.host import Host
from retinue.prompt.sections import Section
from retinue.session.events import ToolFilter
from retinue.subagent.admission import Admission, Limits
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.subagent.policy import captured
from retinue.subagent.provider import (
    PROVIDERS,
    Provider,
    ProviderAdded,
    ProviderRemoved,
    Providers,
    is_continuable,
)
from retinue.subagent.providers.fork import ForkProvider
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.subagent.standing import CHILD_APPROVALS, ChildApprovals, standing_setup
from retinue.subagent.structured import TOOL_NAME as STRUCTURED_OUTPUT
from retinue.subagent.tools.control import interrupt_tool, send_message_tool
from retinue.subagent.tools.list_agents import list_agents_tool
from retinue.subagent.tools.subagent import BACKENDS, Backends, DelegationOptions, delegation_tool
from retinue.subagent.tools.wording import GUIDANCE_ORDER, Background, guidance
from retinue.tasks.record import TaskSettled
from retinue.tasks.runtime import TASKS

__all__ = [
    "OPTIONS",
    "AgentOptionsConfig",
    "InstanceConfig",
    "SubagentConfig",
    "ToolFilterConfig",
    "delegation_options",
    "plugin",
]


class AgentOptionsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What differs from the parent's model options."""

    provider: str | None = None
    model: str | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None


class ToolFilterConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which of the inherited tools a child sees."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


class InstanceConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One delegation tool."""

    provider: str = "spawn"
    """Which provider runs its children."""
    tool_name: str = "subagent"
    """The name the model sees."""
    persona: str | None = None
    """Replaces the opening of its children's system prompt."""
    tool_filter: ToolFilterConfig | None = None
    agent_options: AgentOptionsConfig | None = None
    max_depth: Annotated[int, Meta(ge=0)] | Literal["provider-managed"] = 3
    """Greatest depth of a child; a root has depth 0, so 0 forbids delegation."""
    background_mode: Literal["continuable", "one-shot"] = "one-shot"
    """`continuable`: children work in the background by default, have a durable id and take further messages.
    `one-shot`: a call waits by default, and a background call is a task of its parent."""
    enable_run_in_background: bool = True
    """False takes the parameter away: every call waits."""


class SubagentConfig(InstanceConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first instance, and more of them."""

    instances: tuple[InstanceConfig, ...] = ()
    child_approvals: ChildApprovals = "route"
    """What becomes of a child's call that needs an approval: `route` the question to whoever answers for its root, or
    `reject` the call without asking anybody. Where nobody answers, both reject, unless the policy allows."""
    max_concurrent: Annotated[int, Meta(ge=1)] = 1000
    """Children that may have an open turn at once in this process; more wait in order of arrival."""
    max_concurrent_per_parent: Annotated[int, Meta(ge=1)] = 1000
    """The same for the children of one agent."""


OPTIONS = SubagentConfig


@asynccontextmanager
async def plugin(host: Host, config: SubagentConfig) -> AsyncGenerator[None]:
    """The providers `spawn` and `fork` are registered, and each instance's tool appears while its provider is there.

    Raises: ConfigError for an instance that its provider cannot honour, or a tool name used twice.
    """
    providers = Providers(host.bus, partial(captured, host))
    tasks = host.find(TASKS)
    continuations = Continuations(host, providers, live_tasks=_no_tasks if tasks is None else tasks.live)
    admission = Admission(
        Limits(concurrent=config.max_concurrent, concurrent_per_parent=config.max_concurrent_per_parent)
    )
    backends = Backends(
        providers=providers,
        continuations=continuations,
        admission=admission,
        tasks=tasks,
        controls=(
            send_message_tool(host, continuations),
            interrupt_tool(continuations),
            list_agents_tool(host, continuations),
        ),
    )
    instances = (config, *config.instances)
    names = [instance.tool_name for instance in instances]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"plugins.subagent: tool_name {', '.join(sorted(twice))} is used twice")
    with ExitStack() as stack:
        stack.enter_context(host.provide(PROVIDERS, providers))
        stack.enter_context(host.provide(CONTINUATIONS, continuations))
        stack.enter_context(host.provide(BACKENDS, backends))
        stack.enter_context(host.provide(CHILD_APPROVALS, config.child_approvals))
        stack.enter_context(admission.install(host.agents))
        stack.enter_context(host.agents.on_setup(standing_setup(host, config.child_approvals)))
        stack.enter_context(host.bus.on(TaskSettled, lambda event: continuations.stir(event.owner)))
        stack.enter_context(host.bus.on(StopAsked, continuations.stop))
        stack.enter_context(host.bus.on(Stopped, continuations.stopped))
        stack.enter_context(host.sessions.on_arrival(continuations.arrived))
        stack.enter_context(host.agents.before_disposal(continuations.drain_below))
        host.tools.expect(STRUCTURED_OUTPUT)
        for control in backends.missing_controls(host.tools, map(delegation_options, instances)):
            stack.enter_context(host.tools.add(control))
        for instance in instances:
            stack.enter_context(_mounted(host, backends, instance))
        for made in (SpawnProvider, ForkProvider):
            waits = {"wait_quiet": continuations.wait_quiet, "wait_quiet_again": continuations.wait_quiet_again}
            stack.enter_context(providers.add(made(host.agents, **waits)))
        try:
            yield
        finally:
            if not host.agents.is_suspending:
                await continuations.drain()


def _no_tasks(_: Agent) -> int:
    return 0


def _background(config: InstanceConfig) -> Background:
    return config.background_mode if config.enable_run_in_background else "disabled"


@contextmanager
def _mounted(host: Host, backends: Backends, config: InstanceConfig) -> Generator[None]:
    """The instance's tool is there exactly while its provider is. Source: behaviour TS-08, TS-09."""
    options = delegation_options(config)
    mounted: list[Undo] = []

    def mount(provider: Provider) -> None:
        if provider.name == config.provider:
            _check(provider, config)
            mounted.append(host.tools.add(delegation_tool(backends, provider, options)))
            if options.background == "continuable":
                name = options.tool_name
                text = Section(name=f"tool:{name}", order=GUIDANCE_ORDER, text=guidance(name), tool=name)
                mounted.append(host.prompt.add(text))

    def unmount(provider: Provider) -> None:
        if provider.name == config.provider:
            while mounted:
                mounted.pop()()

    with (
        host.bus.on(ProviderAdded, lambda event: mount(event.provider)),
        host.bus.on(ProviderRemoved, lambda event: unmount(event.provider)),
    ):
        try:
            present = backends.providers.get(config.provider)
            if present is not None:
                mount(present)
            yield
        finally:
            while mounted:
                mounted.pop()()


def delegation_options(config: InstanceConfig) -> DelegationOptions:
    """How the children of the instance are run. Raises: ConfigError for a filter that says nothing."""
    chosen = config.tool_filter
    if chosen is not None and chosen.allow is None and chosen.deny is None:
        raise ConfigError(f"{config.tool_name}: tool_filter names neither allow nor deny; set one or remove it")
    given = config.agent_options or AgentOptionsConfig()
    return DelegationOptions(
        provider=config.provider,
        tool_name=config.tool_name,
        background=_background(config),
        options=AgentOptions(provider=given.provider, model=given.model, max_tokens=given.max_tokens),
        max_depth=config.max_depth if isinstance(config.max_depth, int) else None,
        tool_filter=None if chosen is None else ToolFilter(chosen.allow, chosen.deny),
        persona=config.persona,
    )


def _check(provider: Provider, config: InstanceConfig) -> None:
    """Raises: ConfigError if the provider cannot honour what the instance asks of every child."""
    wanted = {
        "depth_limit": isinstance(config.max_depth, int),
        "tool_filter": config.tool_filter is not None,
        "persona": config.persona is not None,
    }
    if _background(config) == "continuable" and not is_continuable(provider):
        raise ConfigError(
            f"{config.tool_name}: provider {provider.name!r} has no continuable children; use background_mode one-shot"
        )
    for capability, is_wanted in wanted.items():
        if is_wanted and not getattr(provider.capabilities, capability):
            hint = "; set max_depth to provider-managed" if capability == "depth_limit" else ""
            raise ConfigError(f"{config.tool_name}: provider {provider.name!r} does not support {capability}{hint}")
