"""From PROVIDER:NAME and an environment to a model that can be asked, or to a message that says what to set."""

import pytest

from retinue.errors import ConfigError, ModelNotConfigured
from retinue.model.adapters.providers import PROVIDERS, resolve_model
from retinue.model.content import Usage
from retinue.model.prices import Price, cost_usd


def test_the_known_providers() -> None:
    assert set(PROVIDERS) == {
        "anthropic", "deepseek", "openai", "ollama", "vllm", "llamacpp", "openrouter", "gemini", "openai-compatible",
    }  # fmt: skip
    assert all(name == provider.name for name, provider in PROVIDERS.items())


def test_a_model_is_resolved_from_its_name_and_the_environment() -> None:
    found = resolve_model("deepseek:deepseek-v4-flash", {"DEEPSEEK_API_KEY": " sk-1\n"})
    assert (found.provider.name, found.model, found.base_url, found.api_key) == (
        "deepseek",
        "deepseek-v4-flash",
        "https://api.deepseek.com",
        "sk-1",
    )


def test_a_models_name_may_hold_colons_and_slashes() -> None:
    assert resolve_model("ollama:qwen3:8b", {}).model == "qwen3:8b"
    assert resolve_model("openrouter:openai/gpt-5", {"OPENROUTER_API_KEY": "k"}).model == "openai/gpt-5"


def test_the_argument_comes_before_the_variable_and_the_variable_before_the_default() -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    assert resolve_model("openai:m", environment).base_url == "http://127.0.0.1:1/v1"
    assert resolve_model("openai:m", environment, base_url="http://127.0.0.1:2/v1").base_url == "http://127.0.0.1:2/v1"
    assert resolve_model("openai:m", {"OPENAI_API_KEY": "k"}).base_url == "https://api.openai.com/v1"
    assert resolve_model("openai:m", {"OPENAI_API_KEY": "k"}, api_key="mine").api_key == "mine"


def test_the_first_key_variable_that_is_set_counts() -> None:
    assert resolve_model("gemini:m", {"GEMINI_API_KEY": "", "GOOGLE_API_KEY": "g"}).api_key == "g"


def test_a_local_server_needs_no_key() -> None:
    for name in ("ollama", "vllm", "llamacpp"):
        assert resolve_model(f"{name}:m", {}).api_key is None


@pytest.mark.parametrize(
    ("name", "environment", "error", "words"),
    [
        (None, {}, ModelNotConfigured, ["PROVIDER:NAME", "deepseek", "openai-compatible"]),
        (" ", {}, ModelNotConfigured, ["PROVIDER:NAME"]),
        ("gpt-5", {}, ConfigError, ["gpt-5", "PROVIDER:NAME", "openai"]),
        ("opneai:gpt-5", {}, ConfigError, ["opneai", "openai"]),
        ("openai:", {}, ModelNotConfigured, ["openai:NAME"]),
        ("openai:m", {}, ModelNotConfigured, ["OPENAI_API_KEY"]),
        ("gemini:m", {}, ModelNotConfigured, ["GEMINI_API_KEY or GOOGLE_API_KEY"]),
        ("openai-compatible:m", {}, ModelNotConfigured, ["base_url", "OPENAI_COMPATIBLE_BASE_URL"]),
        ("ollama:m", {"OLLAMA_BASE_URL": "localhost:11434"}, ConfigError, ["localhost:11434", "http://"]),
        ("openai:m", {"OPENAI_API_KEY": "sk-“x”"}, ConfigError, ["key of 'openai'"]),
        ("openai:m", {"OPENAI_API_KEY": "sk-1\nsk-2"}, ConfigError, ["key of 'openai'"]),
    ],
)
def test_what_is_missing_is_said(
    name: str | None, environment: dict[str, str], error: type[ConfigError], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        resolve_model(name, environment)
    assert type(caught.value) is error
    assert all(word in str(caught.value) for word in words)
    assert "sk-" not in str(caught.value)


def test_no_representation_shows_a_key() -> None:
    assert "sk-hidden" not in repr(resolve_model("openai:m", {"OPENAI_API_KEY": "sk-hidden"}))


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
    [
        ("deepseek", "deepseek-v4-pro", 1_000_000),
        ("openai", "gpt-5-mini", 400_000),
        ("openai", "gpt-5-chat-latest", 128_000),
        ("openrouter", "openai/gpt-4.1-mini", 1_047_576),
        ("openai", "unheard-of", None),
        ("ollama", "qwen3", None),
    ],
)
def test_the_window_of_the_longest_prefix_counts(provider: str, model: str, tokens: int | None) -> None:
    assert PROVIDERS[provider].context_window(model) == tokens


def test_a_price_belongs_to_one_model_and_its_dated_names() -> None:
    openai, anthropic = PROVIDERS["openai"], PROVIDERS["anthropic"]
    assert openai.price("gpt-5-2025-08-07") == openai.price("gpt-5") == Price(1.25, 10, 0.125)
    assert anthropic.price("claude-sonnet-4-5-20250929") == anthropic.price("claude-sonnet-4-5-latest")
    assert openai.price("gpt-5.9") is None
    assert openai.price("gpt-5-pro") is None


def test_the_cost_counts_cached_tokens_at_their_own_price() -> None:
    usage = Usage(input_tokens=1000, cached_tokens=400, output_tokens=100, requests=1)
    assert cost_usd(Price(2, 8, 0.5), usage) == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 8) / 1e6)
    assert cost_usd(Price(2, 8), usage) == pytest.approx((1000 * 2 + 100 * 8) / 1e6)


def test_output_ceilings_follow_the_longest_prefix() -> None:
    provider = PROVIDERS["anthropic"]
    assert provider.output_ceiling("claude-opus-4-20250514") == 32_000
    assert provider.output_ceiling("claude-opus-4-7") == 128_000
    assert provider.output_ceiling("unknown") is None
