"""Commands in a sandbox of the kernel: what they reach, and everything they try and do not."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.base.ids import SessionId
from retinue.plugins.permissions import Permissions, Preset
from retinue.plugins.sandbox import Sandbox, SandboxConfig
from retinue.plugins.shell import sections, shell_tools
from retinue.prompt.sections import AssemblyContext
from tests.plugins.calls import StubCaller, ToolBox

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed here")


class Place:
    """A project with an agent, a home, and something outside that must stay as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.home = folder / "home"
        self.outside = folder / "outside"
        for made in (self.project, self.home, self.outside):
            made.mkdir()
        (self.outside / "kept").write_text("kept")
        (self.home / "key").write_text("secret of the home")
        (self.project / ".env").write_text("KEY=secret of the project")
        self.sandboxes: list[Sandbox] = []

    def box(self, preset: Preset = "workspace-write", session: str = "session-a", **config: object) -> ToolBox:
        permissions = Permissions(preset, home=self.home, secrets=(self.project / ".env",))
        sandbox = Sandbox(SandboxConfig(**config), closed=permissions.closed)  # type: ignore[arg-type]
        self.sandboxes.append(sandbox)
        return ToolBox(shell_tools(permissions, sandbox=sandbox), self.project, session)

    @property
    def is_untouched(self) -> bool:
        return [path.name for path in self.outside.iterdir()] == ["kept"] and (
            (self.outside / "kept").read_text() == "kept"
        )


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    # Not below /tmp, where a command sees a folder of its own.
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home()) / f".retinue-test-{os.urandom(4).hex()}"
    folder.mkdir(parents=True)
    made = Place(folder)
    try:
        yield made
    finally:
        for sandbox in made.sandboxes:
            sandbox.close()
        shutil.rmtree(folder)


ESCAPES = {
    "an absolute path": "echo x > {outside}/new",
    "a way up": "echo x > ../outside/new",
    "a link": "ln -s {outside} link && echo x > link/new",
    "a folder change": "cd {outside} && echo x > new",
    "removing": "rm -rf {outside}/kept",
    "another user id": "unshare -r sh -c 'echo x > {outside}/new'",
    "mounting anew": "mount -o remount,rw / ; mount -o remount,rw,bind / ; echo x > {outside}/new",
    "a device": "mknod disk b 8 0 && dd if=disk of=/dev/null count=1 && touch {outside}/new",
    "another process": "echo x > /proc/1/root{outside}/new; echo x > /proc/self/root{outside}/new",
    "a process left behind": "(setsid sh -c 'sleep 0.2; echo x > {outside}/new' &) ; sleep 0.4",
    "changing the mode": "chmod -R 777 {outside} && echo x > {outside}/new",
    "a hard link": "ln {outside}/kept here && echo x > here",
    "the environment": "HOME={outside} sh -c 'echo x > $HOME/new'",
}


@needs_bubblewrap
@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("preset", ["read-only", "workspace-write"])
async def test_no_way_leads_out(place: Place, how: str, preset: Preset) -> None:
    await place.box(preset).call("bash", command=ESCAPES[how].format(outside=place.outside))
    assert place.is_untouched


@needs_bubblewrap
async def test_work_goes_on_as_usual_inside(place: Place) -> None:
    box = place.box()
    assert await box.text("bash", command="echo one > a && cat a && pwd") == f"one\n{place.project}"
    assert (place.project / "a").read_text() == "one\n"
    assert await box.text("bash", command="exit 7") == "(no output)\n[exit code: 7]"
    assert "command not found" in await box.text("bash", command="nothing-of-that-name")


@needs_bubblewrap
async def test_read_only_reads_and_runs_and_writes_nothing(place: Place) -> None:
    (place.project / "a").write_text("one")
    box = place.box("read-only")
    assert await box.text("bash", command="cat a") == "one"
    assert "Read-only file system" in await box.text("bash", command="echo two > a")
    assert (place.project / "a").read_text() == "one"


@needs_bubblewrap
async def test_the_home_and_the_keys_are_empty(place: Place) -> None:
    box = place.box()
    shown = await box.text("bash", command=f"ls -A {place.home}; cat .env; cat {place.home}/key")
    assert "secret" not in shown
    await box.call("bash", command=f"echo x > {place.home}/key; echo x > .env")
    assert (place.home / "key").read_text() == "secret of the home"
    assert (place.project / ".env").read_text() == "KEY=secret of the project"


@needs_bubblewrap
async def test_a_project_inside_the_home_is_still_there(place: Place) -> None:
    inner = place.home / "worktree"
    inner.mkdir()
    (inner / "a").write_text("one")
    permissions = Permissions(home=place.home)
    sandbox = Sandbox(SandboxConfig(), closed=permissions.closed)
    place.sandboxes.append(sandbox)
    box = ToolBox(shell_tools(permissions, sandbox=sandbox), inner)
    assert await box.text("bash", command=f"cat a; echo; ls {place.home}") == "one\nworktree"


@needs_bubblewrap
async def test_hooks_and_the_configuration_of_git_stay_as_they_are(place: Place) -> None:
    hooks = place.project / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (place.project / ".git" / "config").write_text("[core]\n")
    await place.box().call("bash", command="echo evil > .git/hooks/pre-commit; echo evil >> .git/config; touch .git/x")
    assert list(hooks.iterdir()) == []
    assert (place.project / ".git" / "config").read_text() == "[core]\n"
    assert (place.project / ".git" / "x").exists()


@needs_bubblewrap
async def test_a_repository_cannot_be_replaced_by_another_one(place: Place) -> None:
    git = place.project / ".git"
    git.mkdir()
    (git / "config").write_text("[core]\n")
    moved = "mv .git old && cp -r old .git; mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit; echo x > .git/x"
    await place.box().call("bash", command=f"{moved}; echo evil >> .git/config; rm -rf .git")
    assert (git / "config").read_text() == "[core]\n"
    assert not list((git / "hooks").iterdir())
    await place.box().call("bash", command="echo ../evil > .git/commondir")
    assert not (git / "commondir").exists()
    shutil.rmtree(git)
    git.write_text("gitdir: elsewhere")
    await place.box().call("bash", command="echo gitdir: evil > .git; rm -f .git; mv .git old")
    assert git.read_text() == "gitdir: elsewhere"


@needs_bubblewrap
@pytest.mark.parametrize("name", ["retinue.yaml", "retinue.yml", ".mcp.json"])
async def test_what_configures_retinue_stays_as_it_is(place: Place, name: str) -> None:
    (place.project / name).write_text("kept")
    await place.box().call("bash", command=f"echo evil > {name}; mv {name} old; rm -f {name}; echo evil > {name}")
    assert (place.project / name).read_text() == "kept"
    (place.project / name).unlink()
    text = await place.box().text("bash", command=f"echo evil > {name}; echo fine > other")
    assert f"no command of an agent may make {place.project / name}" in text
    assert not (place.project / name).exists()
    assert (place.project / "other").exists()
    assert [path.read_text() for path in place.project.glob(f"{name}.*")] == ["evil\n"]
    await place.box("full-access").call("bash", command=f"echo changed > {name}")
    assert (place.project / name).read_text() == "changed\n"


@needs_bubblewrap
async def test_no_command_makes_the_file_with_keys_that_the_next_process_reads(place: Place) -> None:
    (place.project / ".env").unlink()
    await place.box().call("bash", command="echo OPENAI_BASE_URL=http://evil > .env")
    assert not (place.project / ".env").exists()


@needs_bubblewrap
async def test_temporary_files_last_for_one_agent_and_are_seen_by_no_other(place: Place) -> None:
    one, other = place.box(session="session-a"), place.box(session="session-b")
    await one.call("bash", command="echo mine > /tmp/note; echo more > $TMPDIR/more")
    assert await one.text("bash", command="cat /tmp/note; cat /tmp/more") == "mine\nmore"
    assert "No such file" in await other.text("bash", command="cat /tmp/note")
    assert not Path("/tmp/note").exists()
    place.sandboxes[0].forget(SessionId("session-a"))
    assert "No such file" in await one.text("bash", command="cat /tmp/note")


@needs_bubblewrap
async def test_there_is_no_network_unless_it_is_configured(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached"
        assert "reached" not in await place.box().text("bash", command=ask)
        assert "reached" in await place.box(network=True).text("bash", command=ask)


@needs_bubblewrap
async def test_sockets_of_the_machine_are_out_of_reach(place: Place) -> None:
    assert await place.box(network=True).text("bash", command="ls /run | grep -v systemd") in (
        "(no output)\n[exit code: 1]",
        "(no output)",
    )


@needs_bubblewrap
async def test_processes_of_others_are_not_seen_and_what_is_left_ends_with_the_command(place: Place) -> None:
    box = place.box()
    assert await box.text("bash", command=f"kill -0 {os.getpid()}") != "(no output)"
    await box.call("bash", command="(setsid sleep 987654 &)")
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if b"987654" in line and line[:5] == b"sleep"]


@needs_bubblewrap
async def test_configured_paths_are_hidden(place: Place) -> None:
    (place.outside / "more").mkdir()
    box = place.box(hidden=(f"{place.outside}/kept",))
    assert "Permission denied" in await box.text("bash", command=f"cat {place.outside}/kept")


@needs_bubblewrap
async def test_full_access_is_not_confined(place: Place) -> None:
    await place.box("full-access").call("bash", command="echo x > ../outside/new")
    assert not place.is_untouched


async def test_without_a_sandbox_it_is_said_and_read_only_refuses(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = Sandbox(SandboxConfig(), program="/nowhere/bwrap")
    for preset, name in (("workspace-write", None), ("read-only", "PERMISSION_DENIED")):
        permissions = Permissions(preset)  # type: ignore[arg-type]
        box = ToolBox(shell_tools(permissions, sandbox=sandbox), place.project)
        if name is None:
            assert await box.text("bash", command="echo ran") == "ran"
        else:
            assert (await box.refusal("bash", command="echo ran")).name == name
    assert "NOT CONFINED" in caplog.text
    assert "/nowhere/bwrap" in caplog.text


async def test_a_sandbox_that_is_required_and_missing_refuses(place: Place) -> None:
    sandbox = Sandbox(SandboxConfig(required=True), program="/nowhere/bwrap")
    box = ToolBox(shell_tools(Permissions(), sandbox=sandbox), place.project)
    assert (await box.refusal("bash", command="echo ran")).name == "NO_SANDBOX"
    free = ToolBox(shell_tools(Permissions("full-access"), sandbox=sandbox), place.project)
    assert await free.text("bash", command="echo ran") == "ran"


async def test_the_model_is_told_how_commands_are_confined(place: Place) -> None:
    def told(sandbox: Sandbox) -> str:
        (section,) = sections(sandbox)
        assert callable(section.text)
        return section.text(AssemblyContext(provider="p", model="m", cwd=place.project))

    assert "have no network" in told(Sandbox(SandboxConfig(), program="/usr/bin/bwrap"))
    assert "can use the network" in told(Sandbox(SandboxConfig(network=True), program="/usr/bin/bwrap"))
    missing = Sandbox(SandboxConfig(), program="/nowhere/bwrap")
    await missing.confine(("true",), StubCaller(SessionId("s"), place.project), "workspace-write")
    assert "confined" not in told(missing)
