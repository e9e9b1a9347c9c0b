"""Every block of the guides runs, and prints what the page shows below it."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import click
import pytest

from retinue.cli.group import retinue
from retinue.compose.config import Overrides, load_config
from retinue.compose.keys import read_options
from retinue.plugins.acp.known import KNOWN
from retinue.plugins.agents import AgentsConfig, find_agents
from retinue.plugins.mcp.servers import read_servers, resolved
from retinue.plugins.permissions import PermissionsConfig
from retinue.plugins.permissions.rules import Rules
from retinue.plugins.skills import SkillsConfig, find_skills
from retinue.subagent.outcome import ENDINGS
from tests.docs.pages import Block, blocks, commands, fits
from tests.house.checkout import ROOT

_ELSEWHERE = {"pinning.md"}  # one page that is followed as a whole: test_pinning.py
_PAGES = [page for page in sorted((ROOT / "docs" / "guides").glob("*.md")) if page.name not in _ELSEWHERE]
_BLOCKS = [block for page in _PAGES for block in blocks(page)]
_SHOWN = {before: block.text for before, block in pairwise(_BLOCKS) if block.kind == "text"}


@pytest.mark.parametrize("block", [block for block in _BLOCKS if block.kind == "python"], ids=str)
def test_the_code_prints_what_the_page_shows(
    block: Block,
    tmp_path: Path,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", variables["HOME"])
    script = tmp_path / "script.py"  # a real file, since other processes may have to load it
    script.write_text(block.text)
    exec(compile(block.text, str(script), "exec"), {"__name__": "__main__"})

    printed = capsys.readouterr().out
    assert fits(_SHOWN.get(block, ""), printed), printed


@pytest.mark.parametrize("block", [block for block in _BLOCKS if block.kind == "yaml"], ids=str)
def test_the_configuration_holds(block: Block, tmp_path: Path) -> None:
    (tmp_path / "retinue.yaml").write_text(block.text)
    config = load_config(Overrides(), cwd=tmp_path, environ={})
    for name, options in config.plugins.items():
        read = read_options(name, options, import_module(f"retinue.plugins.{name}").OPTIONS)
        if isinstance(read, PermissionsConfig):
            Rules(read.rules)


@pytest.mark.parametrize("block", [block for block in _BLOCKS if block.kind == "markdown"], ids=str)
def test_the_documents_are_found(block: Block, tmp_path: Path) -> None:
    skill = tmp_path / ".retinue" / "skills" / "shown" / "SKILL.md"
    agent = tmp_path / ".retinue" / "agents" / "shown.md"
    for path in (skill, agent):
        path.parent.mkdir(parents=True)
        path.write_text(block.text)
    assert [found.path for found in find_skills(tmp_path, {}, SkillsConfig()).values()] == [skill]
    assert [found.path for found in find_agents(tmp_path, {}, AgentsConfig()).values()] == [agent]


def test_every_command_shows_what_the_page_shows(tmp_path: Path, variables: dict[str, str]) -> None:
    """The commands of the guides, one after the other, in a home where the demo has been."""

    def run(words: str) -> str:
        done = subprocess.run(
            ["sh", "-c", words],
            cwd=tmp_path,
            env={**variables, "RETINUE_HOME": str(tmp_path / "home")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return done.stdout

    run(f"retinue demo --home {tmp_path / 'home'}")
    known = run("retinue sessions")[: len("session-5b1f")]
    for block in _BLOCKS:
        for command in commands(block) if block.kind == "console" else ():
            came = run(command.words.replace("session-5b1f", known))
            assert fits(command.shown.replace("session-5b1f", known), came), f"{block}: {command}\n\ncame:\n{came}"


_JSON = [block for block in _BLOCKS if block.kind == "json"]


@pytest.mark.parametrize("block", [block for block in _JSON if "agent_servers" in block.text], ids=str)
def test_an_editor_is_given_a_command_that_there_is(block: Block) -> None:
    (agent,) = json.loads(block.text)["agent_servers"].values()
    name, *arguments = agent["args"]
    whole = click.Context(retinue, **retinue.context_settings)
    command = retinue.get_command(whole, name)
    assert agent["command"] == "retinue"
    assert command is not None
    assert command.make_context(name, arguments, parent=whole).params["model"]


@pytest.mark.parametrize("block", [block for block in _JSON if "agent_servers" not in block.text], ids=str)
def test_the_servers_are_understood(block: Block, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(block.text)
    servers = read_servers(tmp_path / ".mcp.json")
    assert servers
    for name, server in servers.items():
        resolved(name, server, {"ISSUES_TOKEN": "t"})


def test_no_block_goes_unchecked() -> None:
    assert _PAGES
    assert {block.kind for block in _BLOCKS} <= {"python", "text", "yaml", "markdown", "console", "json"}
    shown_after = {before.kind for before in _SHOWN}
    assert shown_after == {"python"}


def test_the_endings_on_the_page_are_those_that_there_are() -> None:
    text = (ROOT / "docs" / "guides" / "delegating.md").read_text(encoding="utf-8")
    table = text.partition("## Endings")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == ENDINGS


def test_the_known_programs_and_their_keys_on_the_page_are_those_that_there_are() -> None:
    text = " ".join((ROOT / "docs" / "guides" / "external.md").read_text(encoding="utf-8").split())
    named = re.findall(
        r"`(\w+)` \(`([^`]+)`\)", text.partition("Known without a command")[2].partition("Install the")[0]
    )
    assert dict(named) == {name: " ".join(known.argv) for name, known in KNOWN.items()}
    keys = text.partition("those of its own maker to ")[2].partition(", where they are set")[0]
    told = {name: tuple(re.findall(r"`(\w+)`", words)) for name, words in re.findall(r"`(\w+)` \(([^)]+)\)", keys)}
    assert told == {name: known.pass_env for name, known in KNOWN.items() if known.pass_env}
