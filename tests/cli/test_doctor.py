"""`retinue doctor`: each finding, after it has really happened to a home in which something was done."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from retinue.compose.doctor.files import folder_findings
from retinue.plugins.shell.running_groups import RunningGroups
from retinue.tools.output import spill_folder, write_private
from tests.cli.conftest import Lived, cut_off_database
from tests.support.command import Done

Retinue = Callable[..., Done]


class Home:
    """A copy of a home with one finished tree, and what the doctor says about it."""

    def __init__(self, folder: Path, lived: Lived, retinue: Retinue) -> None:
        self.folder = folder
        self.root = str(lived.root)
        self.child = str(lived.result.agents[0].id)
        self._retinue = retinue

    def sql(self, text: str, *values: object) -> list[Any]:
        """The database is edited by hand."""
        with closing(sqlite3.connect(self.folder / "retinue.db")) as connection, connection:
            return connection.execute(text, values).fetchall()

    def doctor(self, *arguments: str) -> Done:
        return self._retinue("doctor", "--home", str(self.folder), *arguments)

    def found(self, *arguments: str) -> list[tuple[str, str, str | None]]:
        """Severity, code and session of each finding."""
        done = self.doctor("--json", *arguments)
        found = [(o["severity"], o["code"], o["session_id"]) for o in done.objects]
        assert done.code == any(severity == "error" for severity, _, _ in found)
        return found


@pytest.fixture
def home(tmp_path: Path, lived: Lived, retinue: Retinue) -> Home:
    folder = tmp_path / "sick"
    shutil.copytree(lived.home, folder)
    return Home(folder, lived, retinue)


def test_a_sound_home_is_in_order_and_stays_as_it_was(home: Home) -> None:
    before = {path: path.read_bytes() for path in home.folder.rglob("*") if path.is_file()}
    done = home.doctor()
    assert (done.code, done.err) == (0, "")
    assert done.out == "7 sessions in 1 tree: all in order\n"
    assert {p: p.read_bytes() for p in before} == before


def test_a_home_that_does_not_exist_is_in_order_and_is_not_made(retinue: Retinue, tmp_path: Path) -> None:
    done = retinue("doctor", "--home", str(tmp_path / "none"))
    assert (done.code, done.out) == (0, "0 sessions in 0 trees: all in order\n")
    assert not (tmp_path / "none").exists()


def test_a_log_that_breaks_a_rule_is_an_error_of_its_session(home: Home) -> None:
    where = "session = (SELECT key FROM session WHERE id = ?) AND type = 'tool/result'"
    home.sql(
        f"UPDATE event SET data = CAST(replace(data, '\"index\":0', '\"index\":7') AS BLOB) WHERE {where}", home.root
    )
    assert {("error", "LOG_BROKEN", home.root), ("error", "LOG_CANNOT_GO_ON", home.root)} <= set(home.found())


def test_what_cannot_be_decoded_is_told_for_each_session_and_hides_no_other(home: Home) -> None:
    of = "session = (SELECT key FROM session WHERE id = ?)"
    home.sql(f"UPDATE event SET data = x'7b' WHERE seq = 0 AND {of}", home.root)
    home.sql(f"UPDATE message SET data = x'7b' WHERE {of}", home.child)
    assert home.found() == [("error", "SESSION_UNREADABLE", home.root), ("error", "SESSION_UNREADABLE", home.child)]
    home.sql(f"DELETE FROM event WHERE seq = 1 AND {of}", home.child)
    assert home.found().count(("error", "SESSION_UNREADABLE", home.child)) == 2
    assert f"retinue prune --home {home.folder} {home.root}" in home.doctor().out


def test_a_claimed_message_without_its_turn_is_an_error(home: Home) -> None:
    home.sql("UPDATE message SET turn = 9 WHERE session = (SELECT key FROM session WHERE id = ?)", home.root)
    (finding,) = home.doctor("--json").objects
    assert (finding["code"], finding["session_id"]) == ("LOG_BROKEN", home.root)
    assert "claimed by turn 9, which never began" in finding["text"]


def test_a_store_that_miscounts_open_work_is_an_error(home: Home) -> None:
    home.sql("UPDATE session SET open_turn = 5 WHERE id = ?", home.child)
    found = home.found()
    assert ("error", "WORK_MISCOUNTED", home.child) in found


def test_a_notice_of_a_child_that_does_not_exist_is_an_error_between_sessions(home: Home) -> None:
    message = {
        "role": "user",
        "id": "m-x",
        "content": [{"type": "text", "text": "over"}],
        "source": {"kind": "subagent-settled", "sender_session_id": "nobody"},
    }
    home.sql(
        "INSERT INTO message (id, session, ord, target, wake, accepted_at, source, data) "
        "SELECT 'm-x', key, 99, 'next-step', 0, 0, 'subagent-settled', CAST(? AS BLOB) FROM session WHERE id = ?",
        json.dumps(message),
        home.root,
    )
    assert home.found() == [("error", "TREE_BROKEN", home.root)]


def test_rows_of_sessions_that_are_gone_and_children_without_parent_are_told(home: Home) -> None:
    home.sql("DELETE FROM session WHERE id = ?", home.root)
    found = home.found()
    assert ("warning", "ROWS_WITHOUT_SESSION", None) in found
    assert ("warning", "PARENT_MISSING", home.child) in found


def test_a_damaged_file_and_one_that_is_none_of_ours_are_errors(home: Home) -> None:
    path = home.folder / "retinue.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    codes = {code for _, code, _ in home.found()}
    assert codes & {"DATABASE_DAMAGED", "DATABASE_UNUSABLE"}
    path.write_bytes(b"not a database " * 99)
    assert [code for _, code, _ in home.found()] == ["DATABASE_UNUSABLE"]


def test_a_newer_schema_says_which_version_to_use(home: Home) -> None:
    home.sql("PRAGMA user_version = 999")
    (finding,) = home.doctor("--json").objects
    assert (finding["severity"], finding["code"]) == ("error", "DATABASE_UNUSABLE")
    assert "use the version that wrote it" in finding["advice"]


def test_a_lease_of_a_dead_process_is_a_note_if_no_work_is_left(home: Home) -> None:
    home.sql("UPDATE lease SET owner = 'fedcba9876543210' WHERE root = ?", home.root)
    assert home.found() == [("note", "LEASE_OF_THE_DEAD", home.root)]


def test_a_database_whose_making_was_cut_off_is_repaired_by_the_next_run(home: Home, tmp_path: Path) -> None:
    for path in home.folder.glob("retinue.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cut_off_database(tmp_path, home.folder / "retinue.db")
    assert home.found() == [("warning", "DATABASE_CUT_OFF", None)]


def test_leftovers_are_notes_and_taken_away_on_request(home: Home) -> None:
    owners = home.folder / "retinue.db.owners"
    owners.mkdir(exist_ok=True)
    (owners / "0123456789abcdef.lock").write_text("{}")
    gone, kept = spill_folder(home.folder / "spill", "session/gone"), spill_folder(home.folder / "spill", home.root)
    for folder in (gone, kept):
        write_private(folder / "1-0.txt", b"long")
    own = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = int(own.stdout)
    write_private(home.folder / "running" / str(dead), f"{dead} 1 {dead} 1\n".encode())
    assert {code for _, code, _ in home.found()} == {"OWNER_FILE_LEFT", "OUTPUT_LEFT", "COMMAND_FILE_LEFT"}
    assert {severity for severity, _, _ in home.found("--fix")} == {"note"}
    assert home.found() == []
    assert (gone.exists(), (kept / "1-0.txt").exists()) == (False, True)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="commands are told apart by /proc alone")
def test_a_command_that_outlived_its_agent_is_a_warning_and_is_left_running(home: Home) -> None:
    code = "import sys; from pathlib import Path; from retinue.plugins.shell.running_groups import RunningGroups; "
    code += "RunningGroups(Path(sys.argv[1])).add(int(sys.argv[2]))"
    with subprocess.Popen(["sleep", "20"], start_new_session=True) as command:
        subprocess.run([sys.executable, "-c", code, str(home.folder / "running"), str(command.pid)], check=True)
        (finding,) = home.doctor("--json", "--fix").objects
        assert (finding["severity"], finding["code"], finding["fixed"]) == ("warning", "COMMAND_LEFT", False)
        assert f"kill -- -{command.pid}" in finding["advice"]
        assert command.poll() is None
        RunningGroups(home.folder / "running").add(command.pid)  # its agent lives now: this process
        assert home.found() == []
        command.kill()


def test_a_home_where_nothing_can_be_written_is_an_error(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert [f.code for f in folder_findings(file / "home", file / "home" / "retinue.db")] == ["HOME_UNWRITABLE"]
    if os.geteuid():  # root may write anywhere
        home.folder.chmod(0o500)
        assert ("error", "HOME_UNWRITABLE", None) in home.found()
        home.folder.chmod(0o700)


def test_a_full_disk_is_told_by_how_much_is_free(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    place = (tmp_path, tmp_path / "retinue.db")
    assert [f.severity for f in folder_findings(*place, low=free * 2, empty=0)] == ["warning"]
    assert [f.severity for f in folder_findings(*place, low=free * 2, empty=free * 2)] == ["error"]
    assert [f.code for f in folder_findings(*place, low=1, empty=0)] == []


def test_advice_can_be_followed_as_it_stands(home: Home, tmp_path: Path) -> None:
    write_private(home.folder / "retinue.db.owners" / "fedcba9876543210.lock", b"")
    advised = f"retinue doctor --home {home.folder} --fix takes it away"
    assert advised in home.doctor().out
    assert home.doctor("--json").objects[0]["advice"] == advised
