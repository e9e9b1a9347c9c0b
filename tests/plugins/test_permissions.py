"""Presets and path confinement: what each preset lets through, and the ways out that are closed."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from retinue.base.ids import SessionId
from retinue.errors import ConfigError, ToolFailure
from retinue.plugins.confined import FileTaken, open_folder, open_regular, put_file
from retinue.plugins.permissions import Permissions, Preset
from tests.plugins.calls import StubCaller


@pytest.fixture
def caller(tmp_path: Path) -> StubCaller:
    cwd = tmp_path / "project"
    cwd.mkdir()
    return StubCaller(SessionId("s"), cwd)


def _denied(check: Any, *arguments: Any) -> str:
    with pytest.raises(ToolFailure) as caught:
        check(*arguments)
    assert caught.value.name == "PERMISSION_DENIED"
    return str(caught.value)


def test_workspace_write_allows_writing_inside_the_folder_only(caller: StubCaller, tmp_path: Path) -> None:
    permissions = Permissions()
    assert permissions.check_write(caller, "a/b.txt") == caller.cwd / "a/b.txt"
    assert permissions.check_write(caller, caller.cwd / "x") == caller.cwd / "x"
    assert permissions.check_write(caller, "a/../b") == caller.cwd / "b"
    said = _denied(permissions.check_write, caller, tmp_path / "other.txt")
    assert "'workspace-write'" in said
    assert str(tmp_path / "other.txt") in said
    assert str(caller.cwd) in said


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "~/x", "sub/../../project-2/x", "."])
def test_paths_that_lead_out_are_refused(path: str, caller: StubCaller) -> None:
    permissions = Permissions()
    if path == ".":
        assert permissions.check_write(caller, path) == caller.cwd
    else:
        _denied(permissions.check_write, caller, path)


def test_links_are_judged_by_where_they_lead(caller: StubCaller, tmp_path: Path) -> None:
    permissions = Permissions()
    (tmp_path / "outside").mkdir()
    (caller.cwd / "file").symlink_to("/etc/passwd")
    (caller.cwd / "folder").symlink_to(tmp_path / "outside")
    (caller.cwd / "hop").symlink_to("folder")
    (caller.cwd / "dangling").symlink_to(tmp_path / "outside/new.txt")
    (caller.cwd / "inner").symlink_to("real")
    for path in ("file", "folder/x", "folder/missing/x", "hop/x", "dangling", "hop/../x"):
        _denied(permissions.check_write, caller, path)
    assert permissions.check_write(caller, "inner/x") == caller.cwd / "real/x"


def test_a_working_folder_behind_a_link_is_its_real_folder(caller: StubCaller, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(caller.cwd)
    via = StubCaller(SessionId("s"), tmp_path / "alias")
    assert Permissions().check_write(via, "x") == caller.cwd / "x"


def test_version_control_data_is_not_written_by_file_tools(caller: StubCaller) -> None:
    assert "git commands" in _denied(Permissions().check_write, caller, ".git/hooks/pre-commit")
    _denied(Permissions().check_write, caller, "vendor/x/.git/config")
    _denied(Permissions().check_write, caller, ".GIT/hooks/pre-commit")
    assert Permissions().check_write(caller, ".gitignore")
    assert Permissions("full-access").check_write(caller, ".git/config")


def test_further_writable_folders_can_be_named(caller: StubCaller, tmp_path: Path) -> None:
    permissions = Permissions(writable=[tmp_path / "scratch"])
    assert permissions.check_write(caller, tmp_path / "scratch/x")
    assert str(tmp_path / "scratch") in _denied(permissions.check_write, caller, tmp_path / "elsewhere")


def test_read_only_writes_nothing_and_runs_nothing(caller: StubCaller) -> None:
    permissions = Permissions("read-only")
    assert permissions.check_read(caller, "/etc/passwd") == Path("/etc/passwd").resolve()
    assert "'read-only'" in _denied(permissions.check_write, caller, "x")
    assert "there is no sandbox" in _denied(permissions.check_command, caller)


def test_full_access_writes_everywhere_but_in_the_home(caller: StubCaller, tmp_path: Path) -> None:
    permissions = Permissions("full-access", home=tmp_path / "home")
    assert permissions.check_write(caller, tmp_path / "x")
    _denied(permissions.check_write, caller, tmp_path / "home/x")


@pytest.mark.parametrize("preset", ["read-only", "workspace-write", "full-access"])
def test_home_key_files_and_processes_are_closed_under_every_preset(
    preset: Preset, caller: StubCaller, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "spill" / "s").mkdir(parents=True)
    env = caller.cwd / ".env"
    env.write_text("KEY=1")
    (caller.cwd / "link").symlink_to(home)
    os.link(env, caller.cwd / "hard")
    permissions = Permissions(preset, home=home, readable=[home / "spill"], secrets=[env])
    closed = [
        home,
        home / "retinue.db",
        "link/retinue.db",
        ".env",
        "hard",
        "/proc",
        "/proc/self/environ",
        f"/proc/{os.getpid()}/mem",
        "/proc/self/task/../environ",
    ]
    for path in closed:
        _denied(permissions.check_read, caller, path)
    assert permissions.check_read(caller, home / "spill/s/1-0.txt")
    _denied(permissions.check_write, caller, home / "spill/s/1-0.txt")
    _denied(permissions.check_write, caller, ".env")


def test_a_session_can_have_its_own_preset(caller: StubCaller) -> None:
    permissions = Permissions("full-access")
    permissions.set(caller.id, "read-only")
    assert permissions.preset(caller.id) == "read-only"
    assert permissions.preset(SessionId("other")) == "full-access"
    _denied(permissions.check_write, caller, "x")
    permissions.set(caller.id, None)
    assert permissions.check_write(caller, "x")


def test_an_unknown_preset_is_refused() -> None:
    wrong: Any = "yolo"
    with pytest.raises(ConfigError, match="workspace-write"):
        Permissions(wrong)
    with pytest.raises(ConfigError):
        Permissions().set(SessionId("s"), wrong)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_is_none_is_refused(path: str, caller: StubCaller) -> None:
    with pytest.raises(ToolFailure) as caught:
        Permissions().check_read(caller, path)
    assert caught.value.name == "BAD_PATH"


def test_unconfined_commands_are_announced_once(caller: StubCaller, caplog: pytest.LogCaptureFixture) -> None:
    permissions = Permissions()
    with caplog.at_level(logging.WARNING, "retinue"):
        permissions.check_command(caller)
        permissions.check_command(caller)
    assert [record.message for record in caplog.records if "NOT CONFINED" in record.message] == [
        caplog.records[0].message
    ]


# --- between the check and the use ---


def test_a_folder_swapped_for_a_link_after_the_check_is_not_followed(caller: StubCaller, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    (caller.cwd / "sub").mkdir()
    (caller.cwd / "sub/f").write_text("mine")
    permissions = Permissions()
    real = permissions.check_write(caller, "sub/f")
    new = permissions.check_write(caller, "sub/new/deep")
    status = real.stat()

    (caller.cwd / "sub").rename(caller.cwd / "moved")
    (caller.cwd / "sub").symlink_to(outside)

    _denied(open_regular, real)
    _denied(lambda: put_file(real, b"x", like=status))
    _denied(lambda: put_file(new, b"x", like=None))
    assert sorted(p.name for p in outside.iterdir()) == ["f"]
    assert (outside / "f").read_text() == "secret"


def test_a_file_swapped_for_a_link_after_the_check_is_not_followed(caller: StubCaller, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("secret")
    path = caller.cwd / "f"
    path.write_text("mine")
    real = Permissions().check_write(caller, "f")
    status = real.stat()
    path.unlink()
    path.symlink_to(target)

    _denied(open_regular, real)
    put_file(real, b"new", like=status)
    assert target.read_text() == "secret"
    assert not path.is_symlink()
    with pytest.raises(FileTaken):
        put_file(real, b"new", like=None)


def test_a_new_file_never_replaces_one_that_came_between(caller: StubCaller) -> None:
    real = Permissions().check_write(caller, "deep/er/f")
    put_file(real, b"one", like=None)
    with pytest.raises(FileTaken):
        put_file(real, b"two", like=None)
    assert real.read_bytes() == b"one"
    assert [p.name for p in real.parent.iterdir()] == ["f"]


def test_pipes_and_devices_are_refused_without_waiting(caller: StubCaller) -> None:
    os.mkfifo(caller.cwd / "pipe")
    for path in (caller.cwd / "pipe", Path("/dev/zero")):
        with pytest.raises(ToolFailure) as caught:
            open_regular(path)
        assert caught.value.name == "NOT_A_FILE"
    with pytest.raises(IsADirectoryError):
        open_regular(caller.cwd)


def test_descriptors_are_closed_whatever_happens(caller: StubCaller) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        open_regular(caller.cwd / "no/such/file")
    with open_folder(caller.cwd / "made/here", create=True):
        pass
    with pytest.raises(IsADirectoryError):
        open_regular(caller.cwd)
    assert len(os.listdir("/proc/self/fd")) == before
