"""Each key may be written in snake_case or camelCase, whichever source says it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from retinue.compose.bundles import BUNDLES
from retinue.compose.config import Config, Overrides, bundled_config, load_config
from retinue.compose.keys import read_options
from retinue.compose.plugins import PLUGINS, plugin_module
from retinue.errors import ConfigError


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found.group(1).upper(), name)


def _options() -> Iterator[tuple[str, str]]:
    for plugin in PLUGINS:
        for field in msgspec.structs.fields(plugin_module(plugin).OPTIONS):
            if "_" in field.name:
                yield plugin, field.name


def _load(folder: Path, *settings: str, yaml: str = "") -> Config:
    (folder / "retinue.yaml").write_text(yaml)
    return load_config(Overrides(settings=settings), cwd=folder, environ={"HOME": str(folder)})


@pytest.mark.parametrize(("plugin", "option"), list(_options()))
def test_an_option_in_either_spelling_takes_the_place_of_an_earlier_source(
    plugin: str, option: str, tmp_path: Path
) -> None:
    for first, second in ((option, _camel(option)), (_camel(option), option), (_camel(option), _camel(option))):
        config = _load(
            tmp_path, f"plugins.{plugin}.{second}=later", yaml=f"plugins: {{{plugin}: {{{first}: earlier}}}}\n"
        )
        assert config.plugins[plugin][option] == "later"
        assert _camel(option) not in config.plugins[plugin]


@pytest.mark.parametrize("option", list(BUNDLES["agent-core"]["plugins"]["subagent"]))
def test_a_file_in_camel_case_overrides_the_bundle(option: str, tmp_path: Path) -> None:
    values = {"background_mode": "one-shot", "instances": "[{toolName: other, agentOptions: {maxTokens: 5}}]"}
    config = _load(tmp_path, yaml=f"plugins: {{subagent: {{{_camel(option)}: {values[option]}, maxDepth: 1}}}}\n")
    given = config.plugins["subagent"]
    assert given[option] != BUNDLES["agent-core"]["plugins"]["subagent"][option]
    assert given["max_depth"] == 1
    read_options("subagent", given, plugin_module("subagent").OPTIONS)


def test_nested_options_meet_in_either_spelling(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        "plugins.subagent.agent_options.max_tokens=7",
        "plugins.subagent.toolFilter.deny=[bash]",
        yaml="plugins: {subagent: {agentOptions: {maxTokens: 5, model: m}, tool_filter: {allow: [read]}}}\n",
    )
    assert config.plugins["subagent"]["agent_options"] == {"max_tokens": 7, "model": "m"}
    assert config.plugins["subagent"]["tool_filter"] == {"allow": ["read"], "deny": ["bash"]}


def test_a_program_may_spell_options_either_way() -> None:
    config = bundled_config("agent-core", plugins={"subagent": {"backgroundMode": "one-shot"}})
    assert config.plugins["subagent"]["background_mode"] == "one-shot"


def test_both_spellings_in_one_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="same key"):
        _load(tmp_path, yaml="plugins: {subagent: {maxDepth: 1, max_depth: 2}}\n")


def test_an_unknown_key_in_camel_case_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"retinue\.yaml: plugins\.subagent: there is no option 'maxDeep'"):
        _load(tmp_path, yaml="plugins: {subagent: {maxDeep: 1}}\n")


def test_names_that_are_no_options_keep_their_spelling(tmp_path: Path) -> None:
    yaml = "plugins: {mcp: {mcpServers: {myServer: {command: x, env: {someName: '1', some_name: '2'}}}}}\n"
    (server,) = _load(tmp_path, yaml=yaml).plugins["mcp"]["mcp_servers"].items()
    assert server == ("myServer", {"command": "x", "env": {"someName": "1", "some_name": "2"}})


_LOADED = """
import sys
from pathlib import Path
from retinue.compose.config import Overrides, load_config
load_config(Overrides(), cwd=Path(sys.argv[1]), environ={"HOME": sys.argv[1]})
print([name for name in sys.modules if name.startswith("retinue.plugins")])
"""


def test_a_file_in_snake_case_loads_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "retinue.yaml").write_text("plugins: {workflow: {max_agents: 3}}\n")
    program = [sys.executable, "-c", _LOADED, str(tmp_path)]
    assert subprocess.run(program, capture_output=True, text=True, timeout=50, check=True).stdout == "[]\n"
