"""Delegation as a plugin: the providers of children that ship with Retinue, and one tool per configured instance."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Literal

from msgspec import Struct

from retinue.agent.environment import AgentOptions
from retinue.base.scope import Undo
from retinue.errors import ConfigError
from retinue.host.host import Host
from retinue.session.events import ToolFilter
from retinue.subagent.provider import PROVIDERS, Provider, ProviderAdded, ProviderRemoved, Providers
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.subagent.tools.subagent import DelegationOptions, delegation_tool

__all__ = ["OPTIONS", "AgentOptionsConfig", "InstanceConfig", "SubagentConfig", "ToolFilterConfig", "plugin"]


class AgentOptionsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What differs from the parent's model options."""

    provider: str | None = None
    model: str | None = None
    max_tokens: int | None = None


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
    max_depth: int | Literal["provider-managed"] = 3
    """Greatest depth of a child; a root has depth 0, so 0 forbids delegation."""


class SubagentConfig(InstanceConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first instance, and more of them."""

    instances: tuple[InstanceConfig, ...] = ()


OPTIONS = SubagentConfig


@asynccontextmanager
async def plugin(host: Host, config: SubagentConfig) -> AsyncGenerator[None]:
    """The `spawn` provider is registered, and each instance's tool appears while its provider is there.

    Raises: ConfigError for an instance that its provider cannot honour or a tool name used twice.
    """
    providers = Providers(host.bus)
    instances = (config, *config.instances)
    names = [instance.tool_name for instance in instances]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"plugins.subagent: tool_name {', '.join(sorted(twice))} is used twice")
    with ExitStack() as stack:
        stack.enter_context(host.provide(PROVIDERS, providers))
        for instance in instances:
            stack.enter_context(_mounted(host, providers, instance))
        stack.enter_context(providers.add(SpawnProvider(host.agents)))
        yield


@contextmanager
def _mounted(host: Host, providers: Providers, config: InstanceConfig) -> Generator[None]:
    """The instance's tool is there exactly while its provider is. Source: behaviour TS-08, TS-09."""
    options = _options(config)
    mounted: list[Undo] = []

    def mount(provider: Provider) -> None:
        if provider.name == config.provider:
            _check(provider, config)
            mounted.append(host.tools.add(delegation_tool(providers, provider, options)))

    def unmount(provider: Provider) -> None:
        if provider.name == config.provider:
            while mounted:
                mounted.pop()()

    with (
        host.bus.on(ProviderAdded, lambda event: mount(event.provider)),
        host.bus.on(ProviderRemoved, lambda event: unmount(event.provider)),
    ):
        try:
            present = providers.get(config.provider)
            if present is not None:
                mount(present)
            yield
        finally:
            while mounted:
                mounted.pop()()


def _options(config: InstanceConfig) -> DelegationOptions:
    chosen = config.tool_filter
    if chosen is not None and chosen.allow is None and chosen.deny is None:
        raise ConfigError(f"{config.tool_name}: tool_filter names neither allow nor deny; set one or remove it")
    given = config.agent_options or AgentOptionsConfig()
    return DelegationOptions(
        provider=config.provider,
        tool_name=config.tool_name,
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
    for capability, is_wanted in wanted.items():
        if is_wanted and not getattr(provider.capabilities, capability):
            hint = "; set max_depth to provider-managed" if capability == "depth_limit" else ""
            raise ConfigError(f"{config.tool_name}: provider {provider.name!r} does not support {capability}{hint}")
