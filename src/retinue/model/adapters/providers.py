"""Model providers as data: where they are, which variable holds the key, how they deviate, how large their models are.

Adding a provider that speaks one of the known formats means adding an entry here. Keys are looked up where a model is
resolved and never appear in a representation or an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from retinue.errors import ConfigError, ModelNotConfigured
from retinue.model.adapters.quirks import Quirks
from retinue.model.prices import Price, price_of

__all__ = ["PRICES_AS_OF", "PROVIDERS", "WINDOWS_AS_OF", "Provider", "ResolvedModel", "resolve_model"]

WINDOWS_AS_OF = "2026-07"
"""When the context windows and output ceilings below were checked."""

PRICES_AS_OF = "2026-06"
"""When the prices below were checked, in US dollars for a million tokens. Configuration overrides them."""


class Provider(Struct, frozen=True, kw_only=True):
    """One vendor or server of models."""

    name: str
    wire: Literal["openai-chat", "anthropic"] = "openai-chat"
    """The format it speaks."""
    base_url: str | None
    """Up to, not including, `/chat/completions` or `/v1/messages`; None if it must be configured."""
    key_variables: tuple[str, ...] = ()
    """The first of these environment variables that is set holds the key."""
    needs_key: bool = True
    base_url_variable: str | None = None
    """An environment variable that replaces `base_url`."""
    quirks: Quirks = Quirks()
    windows: tuple[tuple[str, int], ...] = ()
    """(prefix of a model's name, tokens that fit into one request); the longest prefix counts."""
    ceilings: tuple[tuple[str, int], ...] = ()
    """(prefix of a model's name, tokens it may answer with at most); the longest prefix counts."""
    prices: tuple[tuple[str, Price], ...] = ()
    """(name of a model, its price)."""

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        return _longest(model, self.windows)

    def output_ceiling(self, model: str) -> int | None:
        """Tokens that `model` may answer with at most, or None if unknown."""
        return _longest(model, self.ceilings)

    def price(self, model: str) -> Price | None:
        """What `model` costs, or None if unknown."""
        return price_of(model, self.prices)


def _longest(model: str, numbers: tuple[tuple[str, int], ...]) -> int | None:
    known = [(len(prefix), number) for prefix, number in numbers if model.startswith(prefix)]
    return max(known)[1] if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """A model that can be asked: everything is decided and checked."""

    provider: Provider
    model: str
    base_url: str
    api_key: str | None = field(repr=False)


_OPENAI_WINDOWS = (
    ("gpt-5", 400_000),
    ("gpt-5-chat", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
)

_OPENAI_PRICES = (
    ("gpt-5", Price(1.25, 10, 0.125)),
    ("gpt-5-mini", Price(0.25, 2, 0.025)),
    ("gpt-5-nano", Price(0.05, 0.4, 0.005)),
    ("gpt-5.1", Price(1.25, 10, 0.125)),
    ("gpt-5.4", Price(2.5, 15, 0.25)),
    ("gpt-4.1", Price(2, 8, 0.5)),
    ("gpt-4.1-mini", Price(0.4, 1.6, 0.1)),
    ("gpt-4.1-nano", Price(0.1, 0.4, 0.025)),
    ("gpt-4o", Price(2.5, 10, 1.25)),
    ("gpt-4o-mini", Price(0.15, 0.6, 0.075)),
    ("o3", Price(2, 8, 0.5)),
    ("o4-mini", Price(1.1, 4.4, 0.275)),
)
_FLASH = Price(0.14, 0.28, 0.0028)
_OPUS_OLD, _OPUS = Price(15, 75, 1.5, 18.75), Price(5, 25, 0.5, 6.25)
_SONNET, _HAIKU = Price(3, 15, 0.3, 3.75), Price(1, 5, 0.1, 1.25)

_ALL = (
    Provider(
        name="anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        base_url_variable="ANTHROPIC_BASE_URL",
        windows=(
            ("claude", 200_000),
            ("claude-opus-4-6", 1_000_000),
            ("claude-opus-4-7", 1_000_000),
            ("claude-sonnet-4-6", 1_000_000),
        ),
        ceilings=(
            ("claude-3", 4_096),
            ("claude-3-5", 8_192),
            ("claude-3-7", 64_000),
            ("claude-opus-4", 32_000),
            ("claude-opus-4-5", 64_000),
            ("claude-opus-4-6", 128_000),
            ("claude-opus-4-7", 128_000),
            ("claude-sonnet-4", 64_000),
            ("claude-haiku-4", 64_000),
        ),
        prices=(
            ("claude-opus-4", _OPUS_OLD),
            ("claude-opus-4-1", _OPUS_OLD),
            ("claude-opus-4-5", _OPUS),
            ("claude-opus-4-6", _OPUS),
            ("claude-opus-4-7", _OPUS),
            ("claude-sonnet-4", _SONNET),
            ("claude-sonnet-4-5", _SONNET),
            ("claude-sonnet-4-6", _SONNET),
            ("claude-haiku-4-5", _HAIKU),
        ),
    ),
    Provider(
        name="deepseek",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        base_url_variable="DEEPSEEK_BASE_URL",
        quirks=Quirks(reasoning_field="reasoning_content", images=False),
        windows=(("deepseek-v4", 1_000_000), ("deepseek-chat", 128_000), ("deepseek-reasoner", 128_000)),
        prices=(
            ("deepseek-v4-flash", _FLASH),
            ("deepseek-v4-pro", Price(0.435, 0.87, 0.003625)),
            ("deepseek-chat", _FLASH),
            ("deepseek-reasoner", _FLASH),
        ),
    ),
    Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
        quirks=Quirks(system_role="developer", max_tokens_field="max_completion_tokens"),
        windows=_OPENAI_WINDOWS,
        prices=_OPENAI_PRICES,
    ),
    Provider(
        name="ollama",
        base_url="http://127.0.0.1:11434/v1",
        key_variables=("OLLAMA_API_KEY",),
        needs_key=False,
        base_url_variable="OLLAMA_BASE_URL",
    ),
    Provider(
        name="vllm",
        base_url="http://127.0.0.1:8000/v1",
        key_variables=("VLLM_API_KEY",),
        needs_key=False,
        base_url_variable="VLLM_BASE_URL",
        quirks=Quirks(reasoning_field="reasoning"),
    ),
    Provider(
        name="llamacpp",
        base_url="http://127.0.0.1:8080/v1",
        key_variables=("LLAMA_API_KEY",),
        needs_key=False,
        base_url_variable="LLAMACPP_BASE_URL",
        quirks=Quirks(reasoning_field="reasoning_content"),
    ),
    Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        base_url_variable="OPENROUTER_BASE_URL",
        quirks=Quirks(reasoning_field="reasoning"),
        windows=(
            *((f"openai/{name}", tokens) for name, tokens in _OPENAI_WINDOWS),
            ("deepseek/deepseek-v4", 1_000_000),
        ),
    ),
    Provider(
        name="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_variable="GEMINI_BASE_URL",
        quirks=Quirks(call_signatures=True),
        windows=(("gemini-2.5", 1_048_576), ("gemini-3", 1_048_576)),
    ),
    Provider(
        name="openai-compatible",
        base_url=None,
        key_variables=("OPENAI_COMPATIBLE_API_KEY", "OPENAI_API_KEY"),
        needs_key=False,
        base_url_variable="OPENAI_COMPATIBLE_BASE_URL",
    ),
)

PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
"""All known providers by name."""


def resolve_model(
    name: str | None,
    environment: Mapping[str, str],
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    providers: Mapping[str, Provider] = PROVIDERS,
) -> ResolvedModel:
    """The model that `name` (`PROVIDER:NAME`) stands for. Arguments come before environment, environment before data.

    Raises: ModelNotConfigured if nothing, no model or no key is given; ConfigError for an unknown provider or an
    address that cannot be used. The message says what to set.
    """
    known = ", ".join(sorted(providers))
    if not name or not name.strip():
        raise ModelNotConfigured(f"no model is configured: set it as PROVIDER:NAME; providers are {known}")
    provider_name, colon, model = name.strip().partition(":")
    provider = providers.get(provider_name)
    if provider is None:
        hint = "" if colon else " (a model is written PROVIDER:NAME)"
        raise ConfigError(f"unknown model provider {provider_name!r} in {name!r}{hint}; providers are {known}")
    if not model:
        raise ModelNotConfigured(f"provider {provider_name!r} has no model name: write {provider_name}:NAME")
    url = base_url or _variable(environment, provider.base_url_variable) or provider.base_url
    if not url:
        raise ModelNotConfigured(
            f"provider {provider_name!r} needs an address: set base_url or {provider.base_url_variable}"
        )
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"base_url {url!r} of {provider_name!r} must start with http:// or https://")
    key = (api_key or "").strip() or next((k for v in provider.key_variables if (k := _variable(environment, v))), None)
    if key is None and provider.needs_key and url == provider.base_url:
        raise ModelNotConfigured(f"provider {provider_name!r} needs a key: set {' or '.join(provider.key_variables)}")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key of {provider_name!r} holds a character that no header may hold; copy it again")
    return ResolvedModel(provider=provider, model=model, base_url=url, api_key=key)


def _variable(environment: Mapping[str, str], name: str | None) -> str | None:
    value = environment.get(name, "").strip() if name else ""
    return value or None
