"""Model providers as data: where they are, which variable holds the key, how they deviate, how large their models are.

Adding a provider that speaks the OpenAI chat format means adding an entry here. Keys are looked up where a model is
resolved and never appear in a representation or an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from retinue.errors import ConfigError, ModelNotConfigured
from retinue.model.adapters.quirks import Quirks

__all__ = ["PROVIDERS", "WINDOWS_AS_OF", "Provider", "ResolvedModel", "resolve_model"]

WINDOWS_AS_OF = "2026-07"
"""When the context windows below were checked. Configuration overrides them."""


class Provider(Struct, frozen=True, kw_only=True):
    """One vendor or server of models."""

    name: str
    base_url: str | None
    """Up to, not including, `/chat/completions`; None if it must be configured."""
    key_variables: tuple[str, ...] = ()
    """The first of these environment variables that is set holds the key."""
    needs_key: bool = True
    base_url_variable: str | None = None
    """An environment variable that replaces `base_url`."""
    quirks: Quirks = Quirks()
    windows: tuple[tuple[str, int], ...] = ()
    """(prefix of a model's name, tokens that fit into one request); the longest prefix counts."""

    def context_window(self, model: str) -> int | None:
        """Tokens that fit into one request of `model`, or None if unknown."""
        known = [(len(prefix), tokens) for prefix, tokens in self.windows if model.startswith(prefix)]
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

_ALL = (
    Provider(
        name="deepseek",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        base_url_variable="DEEPSEEK_BASE_URL",
        quirks=Quirks(reasoning_field="reasoning_content", images=False),
        windows=(("deepseek-v4", 1_000_000), ("deepseek-chat", 128_000), ("deepseek-reasoner", 128_000)),
    ),
    Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        base_url_variable="OPENAI_BASE_URL",
        quirks=Quirks(system_role="developer", max_tokens_field="max_completion_tokens"),
        windows=_OPENAI_WINDOWS,
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
