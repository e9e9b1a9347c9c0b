"""A wrong value in a configuration is refused with its path, what it must be, and who says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct

from retinue.base.json import JSONObject
from retinue.compose.config import Overrides, load_config
from retinue.compose.keys import read_options
from retinue.errors import ConfigError
from retinue.plugins.acp import AcpConfig
from retinue.plugins.report import ReportConfig
from retinue.plugins.shell import ShellConfig
from retinue.plugins.subagent import SubagentConfig

_PRESETS = "must be one of read-only, workspace-write, full-access or null, not"


def _refused(cwd: Path, overrides: Overrides, **environ: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides, cwd=cwd, environ={"HOME": str(cwd), **environ})
    return str(refused.value)


def test_the_source_that_says_a_wrong_value_is_named(tmp_path: Path) -> None:
    file = tmp_path / "retinue.yaml"
    file.write_text("model: deepseek:deepseek-chat\n")
    assert _refused(tmp_path, Overrides(permission="all")) == f"permission {_PRESETS} 'all'"
    assert _refused(tmp_path, Overrides(), RETINUE_PERMISSION="all").startswith(
        "RETINUE_PERMISSION: permission must be one of"
    )
    assert _refused(tmp_path, Overrides(settings=("permission=all",))) == f"--set: permission {_PRESETS} 'all'"
    file.write_text("permission: all\n")
    assert _refused(tmp_path, Overrides()) == f"{file}: permission {_PRESETS} 'all'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("store: {durability: eternal}", "store.durability must be one of process, power, not 'eternal'"),
        ("store: here", "store must be a mapping, not 'here'"),
        ("max_parallel_tools: 0", "max_parallel_tools must be an integer from 1, not 0"),
        ("retry: {maxRetries: -1}", "retry.max_retries must be an integer from 0, not -1"),
        ("prices: {m: {input: 1, output: free}}", "prices.m.output must be a number, not 'free'"),
        ("prices: {m: {input: 1}}", "prices.m lacks output"),
        ("retry: {jitter: 5}", "retry.jitter must be a number from 0 to 1, not 5"),
    ],
)
def test_the_innermost_wrong_value_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "retinue.yaml"
    file.write_text(text)
    assert _refused(tmp_path, Overrides()) == f"{file}: {message}"


def test_what_two_sources_say_together_may_be_whole(tmp_path: Path) -> None:
    settings = ("prices.m.input=1", "prices.m.output=2")
    config = load_config(Overrides(settings=settings), cwd=tmp_path, environ={"HOME": str(tmp_path)})
    assert config.prices["m"].output == 2


@pytest.mark.parametrize(
    ("name", "options", "struct", "message"),
    [
        ("subagent", {"maxDepth": -1}, SubagentConfig, "max_depth must be an integer from 0 or provider-managed, not"),
        ("subagent", {"instances": [{}, {"max_depth": "x"}]}, SubagentConfig, "instances[1].max_depth must be"),
        ("acp", {"agents": {"a": {"args": [1]}}}, AcpConfig, "agents.a.args[0] must be text, not 1"),
        ("shell", {"timeout_s": 0}, ShellConfig, "timeout_s must be a number above 0, not 0"),
        ("subagent", {"agentOptions": {"maxTokens": 0}}, SubagentConfig, "agent_options.max_tokens must be an integer"),
        ("report", {"max_per_turn": -1}, ReportConfig, "max_per_turn must be an integer from 0, not -1"),
    ],
)
def test_options_of_plugins_are_refused_in_the_same_words(
    name: str, options: JSONObject, struct: type[Struct], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_options(name, options, struct)
    assert str(refused.value).startswith(f"plugins.{name}.{message}")
