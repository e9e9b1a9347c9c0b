"""Every preset on every path to a tool, with attempts to get out: nothing outside of the folder changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

import retinue
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.model.content import text_of
from retinue.plugins.permissions import Preset
from retinue.session.events import ToolReturned
from retinue.session.invariants import violations
from retinue.testing.host import all_sessions
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Call, Reply, call, calls, optional, text

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed here")

KEY = "the key of the project"


class Place:
    """A project with an agent, and something outside that must stay as it is."""

    def __init__(self, folder: Path) -> None:
        self.work, self.home, self.outside = folder / "work", folder / "home", folder / "outside"
        for made in (self.work, self.home, self.outside):
            made.mkdir(parents=True)
        (self.outside / "kept").write_text("kept")
        (self.work / ".env").write_text(f"KEY={KEY}")
        (self.work / "link").symlink_to(self.outside)
        agents = self.work / ".retinue" / "agents"
        agents.mkdir(parents=True)
        (agents / "actor.md").write_text("---\nname: actor\ndescription: Acts.\n---\nYou act.\n")

    def attempts(self) -> list[Call]:
        """What an agent tries, all at once; each call alone would be enough."""
        out = self.outside
        writes = ("../outside/a", "link/b", f"{out}/c", "sub/../../outside/d", "~/../outside/e")
        commands = (
            f"echo x > {out}/f",
            "cd ../outside && echo x > g",
            "echo x > ../outside/h",
            "echo x > link/i",
            f"(sleep 0.1; echo x > {out}/j) &",
            f"setsid sh -c 'sleep 0.1; echo x > {out}/k' &",
            f"ln -s {out} way; echo x > way/l",
            f"HOME={out}; cd && echo x > m",
            f"mv kept.txt {out}/n; cp -r . {out}/o",
            "cat .env",
            f"rm -rf {out}/kept {out}",
            "echo 'echo x > ../outside/p' > run.sh; sh run.sh",
        )
        return [
            call("read", path=".env"),
            call("grep", pattern="KEY", path="."),
            *(call("write", path=path, content="x") for path in writes),
            *(call("bash", command=command) for command in commands),
            call("bash", command=f"echo x > {out}/q", run_in_background=True),
            call("write", path="way/r", content="x"),
            call("write", path="inside.txt", content="x"),
            call("bash", command="echo x > shell.txt"),
        ]

    def check(self, preset: Preset) -> None:
        assert [path.name for path in self.outside.iterdir()] == ["kept"]
        assert (self.outside / "kept").read_text() == "kept"
        made = {path.name for path in self.work.iterdir()} - {".env", ".retinue", "link"}
        assert made == (set() if preset == "read-only" else {"inside.txt", "shell.txt", "way", "run.sh"})


@pytest.fixture
def place() -> Iterator[Place]:
    # Not below /tmp, where a command sees a folder of its own.
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home()) / f".retinue-test-{os.urandom(4).hex()}"
    try:
        yield Place(folder)
    finally:
        shutil.rmtree(folder)


def _says(model: ScriptedModel, label: str, *replies: Reply) -> None:
    model.script(label, *replies, *[optional(text("noted"))] * 9)


PATHS = ("root", "child", "grandchild", "fork", "one of a kind", "workflow", "resumed child")


def cast(model: ScriptedModel, path: str, deed: Reply) -> None:
    """Whoever is at the end of that path does the deed."""
    below = calls(call("subagent", description="actor", prompt="Act."))
    match path:
        case "root":
            _says(model, "R", deed)
        case "child":
            _says(model, "R", below)
            _says(model, "actor", deed)
        case "grandchild":
            _says(model, "R", calls(call("subagent", description="middle", prompt="Delegate.")))
            _says(model, "middle", below)
            _says(model, "actor", deed)
        case "fork":
            _says(model, "R", calls(call("subagent_fork", description="actor", prompt="Act.")))
            _says(model, "actor", deed)
        case "one of a kind":
            _says(model, "R", calls(call("agent_actor", description="actor", prompt="Act.")))
            _says(model, "actor", deed)
        case "workflow":
            act = 'return await agent("Act.", label="actor")'
            _says(model, "R", calls(call("workflow", script=act, meta={"name": "acting"})))
            _says(model, "actor", deed)
        case _:
            _says(model, "R", below)
            _says(model, "actor", text("Ready."), deed)


async def act(place: Place, path: str, deed: Sequence[Call], *settings: str, permission: Preset | None) -> list[str]:
    """The deed was done, or tried, on that path; the texts of all results."""
    model = ScriptedModel()
    cast(model, path, calls(*deed))
    common = ("plugins.workflow={}", *settings)
    opened = partial(
        retinue.open, "scripted:model-1", client=model, cwd=place.work, home=place.home, settings=common, environ={}
    )
    async with opened(permission=permission) as app:
        agent = await app.agent(label="R", id="root")
        await (await app.run("Go.", agent=agent)).result()
        found = await _results(app)
    if path == "resumed child":
        async with opened() as app:  # what it may do is in the logs
            (child,) = await app.host.sessions.store.children(SessionId("root"))
            await app.send(child.header.id, "Act now.")
            await (await app.resume("root")).result()
            found = await _results(app)
    assert len(found) >= len(deed), found
    return found


async def _results(app: App) -> list[str]:
    found: list[str] = []
    for summary in await all_sessions(app.host.sessions.store):
        events = (await app.host.sessions.store.read(summary.header.id)).events
        assert violations(events, quiescent=True) == []
        found += [text_of(event.data.message.content) for event in events if isinstance(event.data, ToolReturned)]
    return found


@needs_bubblewrap
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("preset", ["read-only", "workspace-write"])
async def test_nothing_gets_out_of_the_folder(place: Place, preset: Preset, path: str) -> None:
    found = await act(place, path, place.attempts(), permission=preset)
    place.check(preset)
    assert KEY not in "\n".join(found)


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_denied_is_denied_to_everybody_also_with_full_access(place: Place, path: str) -> None:
    deny = "plugins.permissions.rules.deny=['bash(touch *)', 'write(*.txt)']"
    closed = f"plugins.permissions.closed=['{place.outside}']"
    deed = [
        call("bash", command="sudo touch a || touch a"),
        call("bash", command="touch b", run_in_background=True),
        call("write", path="c.txt", content="x"),
        call("read", path=".env"),
        call("read", path="link/kept"),
        call("write", path=f"{place.outside}/d", content="x"),
    ]
    found = await act(place, path, deed, deny, closed, "plugins.sandbox=null", permission="full-access")
    assert {path.name for path in place.work.iterdir()} == {".env", ".retinue", "link"}
    assert [path.name for path in place.outside.iterdir()] == ["kept"]
    assert sum("denies it" in result for result in found) == 3
    assert sum("closed to agents" in result for result in found) == 3
    assert KEY not in "\n".join(found)
