"""A host from a configuration: store, model providers and plugins, in that order, undone in reverse."""

from __future__ import annotations

import resource
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from retinue.agent.environment import AgentOptions
from retinue.base.clock import Clock, SystemClock
from retinue.base.json import JSON
from retinue.compose.config import Config
from retinue.compose.keys import read_options
from retinue.compose.plugins import PLUGINS, PluginModule, plugin_module
from retinue.compose.stores import home_of, open_store
from retinue.errors import ConfigError, DuplicateName
from retinue.host.host import Host, HostOptions, open_host
from retinue.model.client import ModelClient
from retinue.model.prices import Price
from retinue.model.retry import RetryPolicy
from retinue.prompt.sections import Section
from retinue.session.store import SessionStore
from retinue.subagent.child import PERSONA_ORDER, PERSONA_SECTION
from retinue.tools.registry import check_order

__all__ = ["build", "make_client", "model_options", "secrets_of"]

_SECRET_CHARS = 8
"""Shorter keys are placeholders such as `none`, and common words."""


def model_options(config: Config) -> AgentOptions:
    """Where agents that say nothing else send their requests."""
    provider, _, model = (config.model or "").partition(":")
    return AgentOptions(
        provider=provider or None, model=model or None, max_tokens=config.max_tokens, body=config.model_options
    )


@asynccontextmanager
async def build(
    config: Config,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    clients: Sequence[ModelClient] = (),
    store: SessionStore | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[Host]:
    """A running host with everything the configuration asks for.

    `clients` come before configured model providers of the same name. `store` is owned by the host from here on.
    Raises: ConfigError, ModelNotConfigured, MissingSeam, StoreFailure; nothing is left open then.
    """
    clock = clock or SystemClock()
    _allow_files(4096)
    if config.tool_order is not None:
        check_order(config.tool_order)
    options = HostOptions(
        durability=config.store.durability,
        retry=RetryPolicy(
            max_retries=config.retry.max_retries,
            first_delay_s=config.retry.first_delay_s,
            max_delay_s=config.retry.max_delay_s,
            jitter=config.retry.jitter,
        ),
        options=model_options(config),
        cwd=cwd,
        home=home_of(config, environ),
        environ=environ,
        width=config.max_parallel_tools,
        tool_order=config.tool_order,
        on_interrupt=config.recovery.on_interrupt,
        secrets=secrets_of(environ),
    )
    plugins = [(name, *_load(name, config)) for name in _chosen(config)]
    async with AsyncExitStack() as stack:
        made = [client for client in clients if client.provider] or [
            make_client(config, environ, model=config.model, base_url=config.base_url)
        ]
        for client in made:
            stack.push_async_callback(client.aclose)
        host = await stack.enter_async_context(open_host(store or open_store(config, environ, clock), clock, options))
        for client in made:
            stack.enter_context(host.add_client(client))

        def other(name: str) -> ModelClient | None:
            """A provider that only some agents use: of a tool, a file or a resumed log."""
            from retinue.model.adapters.providers import PROVIDERS

            if clients or name not in PROVIDERS:
                return None
            client = make_client(config, environ, model=f"{name}:any", base_url=None)
            stack.push_async_callback(client.aclose)
            return client

        stack.enter_context(host.find_clients(other))
        if config.persona:
            stack.enter_context(
                host.prompt.add(Section(name=PERSONA_SECTION, order=PERSONA_ORDER, text=config.persona))
            )
        for name, module, plugin_options in plugins:
            try:
                await stack.enter_async_context(module.plugin(host, plugin_options))
            except DuplicateName as error:
                raise ConfigError(f"plugins.{name}: {error}") from error
        stack.push_async_callback(host.suspend)
        yield host


def _allow_files(wanted: int) -> None:
    """The process may open so many files, if the system lets it.

    Each child that waits for its model holds a connection, and common limits of 256 or 1024 would fail at as many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a limit of its own below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_client(config: Config, environ: Mapping[str, str], *, model: str | None, base_url: str | None) -> ModelClient:
    """A client of the provider that `model` names. The caller closes it. Raises: ModelNotConfigured."""
    from retinue.model.adapters.providers import resolve_model
    from retinue.model.prices import price_of

    resolved = resolve_model(model, environ, base_url=base_url)
    provider = resolved.provider

    def price(model: str) -> Price | None:
        return price_of(model, config.prices.items()) or provider.price(model)

    if provider.wire == "anthropic":
        from retinue.model.adapters.anthropic import anthropic_client

        return anthropic_client(
            provider=provider.name,
            base_url=resolved.base_url,
            api_key=resolved.api_key,
            context_window=provider.context_window,
            output_ceiling=provider.output_ceiling,
            price=price,
        )
    from retinue.model.adapters.openai_chat import openai_chat_client

    return openai_chat_client(
        provider=provider.name,
        base_url=resolved.base_url,
        api_key=resolved.api_key,
        quirks=provider.quirks,
        context_window=provider.context_window,
        price=price,
    )


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of all known model providers that are set: the one that is used is among them."""
    from retinue.model.adapters.providers import PROVIDERS

    names = {name for provider in PROVIDERS.values() for name in provider.key_variables}
    values = {environ.get(name, "").strip() for name in names}
    return tuple(sorted(value for value in values if len(value) >= _SECRET_CHARS))


def _chosen(config: Config) -> list[str]:
    unknown = sorted(set(config.plugins) - set(PLUGINS))
    if unknown:
        raise ConfigError(f"there is no plugin {unknown[0]!r}; there are {', '.join(PLUGINS)}")
    return [name for name in PLUGINS if config.plugins.get(name) not in (None, False)]


def _load(name: str, config: Config) -> tuple[PluginModule, Struct]:
    module = plugin_module(name)
    given: JSON = config.plugins[name]
    return module, read_options(name, given, module.OPTIONS)
