"""A key that tools come across is in no file of the home, whichever way it took."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

import retinue
from retinue.errors import ConfigError
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.scenarios.stock import stock

SERVER = Path(__file__).parents[1] / "plugins" / "mcp_servers" / "plain.py"

# Put together here, so that no file has the form of a secret.
PROVIDER = "provider-key-" + "0123456789"
"""A known value without a known form."""
TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
"""A known form."""
SERVERS = "plain-words-for-a-server"
"""What an MCP server was told."""
BUILT = "sk-" + "ant-" + "api03-" + "abcdefghij0123456789"
"""What a script puts together, and says in every way that it has."""

SCRIPT = """
key = "-".join(["sk", "ant", "api03", "abcdefghij0123456789"])
phase(key)
log(key)
said = await agent("look at " + key, label="c " + key)
if args == "fail":
    raise ValueError(key)
return [said, key]
"""


async def test_no_secret_is_in_any_file_of_the_home(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    (project / "notes.txt").write_text(f"provider: {PROVIDER}\ntoken: {TOKEN}\n")
    server = {"command": sys.executable, "args": [str(SERVER)], "env": {"GIVEN_TOKEN": SERVERS}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"plain": server}}))
    model = ScriptedModel()
    flood = 'yes "$(cat notes.txt)" | head -n 8000'
    meta = {"name": "W"}
    model.script(
        "R",
        calls(call("bash", command="cat notes.txt"), call("read", path="notes.txt")),
        calls(call("bash", command=flood), call("grep", pattern="provider|token", path=".")),
        calls(call("mcp__plain__variable", name="GIVEN_TOKEN"), call("mcp__plain__fail", why="x")),
        calls(call("subagent", description="c", prompt="look", run_in_background=False)),
        calls(call("workflow", script=SCRIPT, meta=meta), call("workflow", script=SCRIPT, meta=meta, args="fail")),
        calls(call("bash", command="cat notes.txt; sleep 0.1; cat notes.txt >&2", run_in_background=True)),
        calls(call("task_output", task_id="bash-1", wait=True)),
        text("done"),
    )
    for label in ("c", "c [secret]", "c [secret]"):
        model.script(label, calls(call("bash", command="cat notes.txt")), text("seen"))
    monkeypatch.setenv("OPENAI_API_KEY", PROVIDER)
    async with retinue.open(
        "scripted:m",
        client=model,
        cwd=project,
        home=home,
        settings=["plugins.mcp={}", "plugins.workflow={}"],
        environ={"OPENAI_API_KEY": PROVIDER},
    ) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        logging.getLogger("retinue").warning("a word about %s", PROVIDER)
        results = model.requests("R")[-1].results
    met = [result for result in results if "[secret]" in result]
    assert len(met) == 8, results  # all but the failure of the server, the child's own words and a receipt
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"retinue.db"} <= {path.name for path in files}
    assert any("spill" in path.parts for path in files)
    everything = {str(path): path.read_bytes() for path in files} | {"the log": caplog.text.encode()}
    found = [
        (place, secret[:6])
        for place, data in everything.items()
        for secret in (PROVIDER, TOKEN, BUILT, SERVERS)
        if secret.encode() in data
    ]
    assert found == []


async def test_forms_are_looked_for_unless_configured_otherwise_and_more_can_be_added(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(f"{TOKEN} ticket T-4711-X done")

    async def read(name: str, *settings: str) -> str:
        model = ScriptedModel()
        model.script("R", calls(call("read", path=str(tmp_path / "notes.txt"))), text("done"))
        async with stock(model, tmp_path / name, *settings) as app:
            agent = await app.agent(label="R")
            await agent.follow_up("go").wait()
            await agent.wait_idle()
            return model.requests("R")[1].results[0]

    assert "[secret] ticket T-4711-X done" in await read("a")
    assert f"{TOKEN} ticket T-4711-X done" in await read("b", "plugins.output.redact=false")
    own = ["plugins.output.patterns=['ticket (?P<secret>T-[0-9]+-X)']"]
    assert "[secret] ticket [secret] done" in await read("c", *own)
    assert f"{TOKEN} ticket [secret] done" in await read("d", "plugins.output.redact=false", *own)


@pytest.mark.parametrize("pattern", ["(", "x*", "secret"])
async def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plugins.output.patterns"):
        async with stock(ScriptedModel(), tmp_path, f"plugins.output.patterns=['{pattern}']"):
            pass
