"""Every block of the README does what it says: commands in order in a newcomer's folder, code, configuration."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from retinue.compose.config import Overrides, load_config
from retinue.compose.keys import read_options
from retinue.compose.plugins import PLUGINS
from retinue.plugins.permissions import PermissionsConfig
from tests.docs.pages import Block, Command, blocks, commands, fits
from tests.house.checkout import ROOT
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

README = ROOT / "README.md"
BLOCKS = blocks(README)

NOT_RUN = {
    "./scripts/test": "it is the command that runs this test",
}
"""Commands that are shown and not run, with the reason."""

_SESSION = "session-5b1f"
"""Stands in the README for the id of the newest session."""

_STANDS_FOR = {"./scripts/demo": "retinue demo"}
"""What is run for a command that would set up the checkout once more."""


def _of(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


def _delegate(label: str, prompt: str) -> dict[str, object]:
    args = {"description": label, "prompt": prompt, "run_in_background": False}
    return {"tool": "subagent", "args": args}


@pytest.fixture
def server() -> Generator[ScriptedServer]:
    """The model of the README. Conversations that a test does not have stay unused."""
    code, tests = _delegate("look at the code", "CODE"), _delegate("look at the tests", "TESTS")
    answer = "It keeps the berths of a harbour; ships are tested, cranes are not."
    with scripted_server(
        session("overview", r"project\? Let one", calls(code, tests), says(answer)),
        session("code", r"\ACODE", says("berths of a harbour")),
        session("tests", r"\ATESTS", says("ships, no cranes")),
        session("hello", r"\ASay hello\.", says("Hello."), says("Hello.")),
        session("logs", r"\ARead the logs", says("never", hold="never"), says("A crane stood still on Tuesday.")),
        session("project", r"\AWhat is in this project\?\Z", says("Berths of a harbour.")),
        session(
            "tide",
            r"\AWhen is high water",
            calls({"tool": "tide", "args": {"harbour": "Emden"}}),
            says("High water is at {{re:(14:20)}}."),
        ),
    ) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that a newcomer works in, with the `.env` of the README."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".venv").symlink_to(sys.prefix)
    (block,) = _of("dotenv")
    (folder / ".env").write_text(block.text)
    return folder


@pytest.fixture
def newcomer(variables: dict[str, str], server: ScriptedServer) -> dict[str, str]:
    """The environment, with the providers of the README at our server."""
    return {**variables, "DEEPSEEK_BASE_URL": server.url, "OLLAMA_BASE_URL": server.url}


class _Terminal:
    """Runs the commands of the README one after the other."""

    def __init__(self, folder: Path, variables: dict[str, str], server: ScriptedServer) -> None:
        self._folder = folder
        self._variables = variables
        self._server = server
        self._latest = ""

    def run(self, command: Command) -> tuple[str, str]:
        """What the page shows, with the ids that there are, and what came."""
        words = _STANDS_FOR.get(command.words, command.words)
        words = self._with_id(words.replace("http://127.0.0.1:8000/v1", self._server.url))
        process = subprocess.Popen(
            ["sh", "-c", words],
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if "^C" in command.shown.splitlines():
            self._server.wait(lambda server: any(request.outcome == "pending" for request in server.requests))
            os.killpg(process.pid, signal.SIGINT)
        came, _ = process.communicate(timeout=30)
        announced = re.findall(r"^session (\S+)$", came, re.MULTILINE)
        self._latest = announced[-1] if announced else self._latest
        return self._with_id(re.sub(r"^\^C\n", "", command.shown, flags=re.MULTILINE)), came

    def _with_id(self, text: str) -> str:
        return text.replace(_SESSION, self._latest[: len(_SESSION)])


def _sittings() -> list[list[Block]]:
    """Console blocks by what they share: those that speak of the same session follow one another."""
    sittings: list[list[Block]] = []
    for block in _of("console"):
        if _SESSION in block.text and sittings and _SESSION in sittings[-1][-1].text:
            sittings[-1].append(block)
        else:
            sittings.append([block])
    return sittings


@pytest.mark.parametrize("sitting", _sittings(), ids=lambda sitting: str(sitting[0]))
def test_every_command_shows_what_the_page_shows(
    sitting: list[Block], folder: Path, newcomer: dict[str, str], server: ScriptedServer
) -> None:
    terminal = _Terminal(folder, newcomer, server)
    for block in sitting:
        for command in commands(block):
            if command.words not in NOT_RUN:
                shown, came = terminal.run(command)
                assert fits(shown, came), f"{block}: $ {command.words}\nshown:\n{shown}\n\ncame:\n{came}"


_PRINTS = {
    "async for text in run": "Berths of a harbour.\ncompleted, 5 tokens written\n",
    "@retinue.tool": "High water is at 14:20.\n",
}
"""What a block of code prints, by words that are in it."""


@pytest.mark.parametrize(
    "block",
    _of("python"),
    ids=str,
)
def test_the_code_runs(
    block: Block,
    folder: Path,
    newcomer: dict[str, str],
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    for name, value in newcomer.items():
        monkeypatch.setenv(name, value)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})

    (printed,) = [printed for words, printed in _PRINTS.items() if words in block.text]
    assert capsys.readouterr().out == printed
    assert {request.outcome for request in server.requests} == {"answered"}


@pytest.mark.parametrize("block", _of("yaml"), ids=str)
def test_the_configuration_holds(block: Block, tmp_path: Path) -> None:
    (tmp_path / "retinue.yaml").write_text(block.text)
    config = load_config(Overrides(), cwd=tmp_path, environ={})
    permissions = read_options("permissions", config.plugins["permissions"], PermissionsConfig)
    if block == _of("yaml")[0]:
        assert config.model == "deepseek:deepseek-chat"
        assert config.plugins["subagent"]["max_depth"] == 2
    else:
        assert isinstance(permissions, PermissionsConfig)
        assert permissions.rules.deny == ("edit(vendor/**)",)


def test_the_page_names_the_plugins_that_there_are() -> None:
    (sentence,) = re.findall(r"The plugins are (.*?);", README.read_text(encoding="utf-8"), re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", sentence)) == sorted(PLUGINS)


def test_no_block_goes_unchecked() -> None:
    assert {block.kind for block in BLOCKS} == {"console", "python", "yaml", "dotenv"}
    shown = {command.words for block in _of("console") for command in commands(block)}
    assert {*NOT_RUN, *_STANDS_FOR} <= shown


def test_the_demo_script_runs_the_command_that_stands_for_it() -> None:
    assert (ROOT / "scripts" / "demo").read_text().rstrip().endswith('exec "$root/.venv/bin/retinue" demo "$@"')
