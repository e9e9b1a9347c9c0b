"""The Python interface around the work: what it is opened from and how it is left."""

from pathlib import Path

import pytest

import retinue
from retinue.base.json import JSON
from retinue.cli.demo.model import DemoModel
from retinue.compose.config import bundled_config
from retinue.errors import ConfigError, ModelNotConfigured
from retinue.testing.model import ScriptedModel
from retinue.testing.script import text


async def test_what_the_block_raises_reaches_the_caller_as_it_is(tmp_path: Path) -> None:
    config = bundled_config("agent-core", model="scripted:x", home=str(tmp_path / "home"))
    with pytest.raises(ZeroDivisionError):
        async with retinue.open(config=config, cwd=tmp_path, client=DemoModel()):
            raise ZeroDivisionError


async def test_a_plugin_that_refuses_its_options_stops_the_start_with_its_own_error(tmp_path: Path) -> None:
    plugins: JSON = {"subagent": {"tool_name": "x", "instances": [{"tool_name": "x"}]}}
    config = bundled_config("agent-core", model="scripted:x", home=str(tmp_path / "home"), plugins=plugins)
    with pytest.raises(ConfigError, match="used twice"):
        async with retinue.open(config=config, cwd=tmp_path, client=DemoModel()):
            pass


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("subagent", {"tool_name": "read"}),
        ("subagent", {"instances": [{"tool_name": "task_list"}]}),
        ("acp", {"agents": {"other": {"command": "true", "tool_name": "bash"}}}),
    ],
)
async def test_a_tool_name_that_another_plugin_has_is_an_error_of_the_configuration(
    plugin: str, options: JSON, tmp_path: Path
) -> None:
    config = bundled_config("agent-core", model="scripted:x", home=str(tmp_path / "home"), plugins={plugin: options})
    with pytest.raises(ConfigError, match=f"plugins.{plugin}: tool '.*' is registered twice"):
        async with retinue.open(config=config, cwd=tmp_path, client=DemoModel()):
            pass


async def test_a_root_that_is_closed_is_accounted_for_no_more(tmp_path: Path) -> None:
    config = bundled_config("agent-core", model="scripted:x", home=str(tmp_path / "home"))
    model = ScriptedModel(text("one"), text("two"))
    async with retinue.open(config=config, cwd=tmp_path, client=model) as app:
        before = app.host.sessions.observers(durable=False)
        run = await app.run("go")
        await run.result()
        again = await app.run("on", agent=run.agent)
        await again.result()
        assert len(app.host.sessions.observers(durable=False)) == len(before) + 1
        await app.close(run.agent)
        assert app.host.sessions.observers(durable=False) == before


async def test_without_a_model_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(ModelNotConfigured):
        async with retinue.open(cwd=tmp_path, home=tmp_path / "home", environ={"HOME": str(tmp_path)}):
            pass
    assert list(tmp_path.iterdir()) == []
