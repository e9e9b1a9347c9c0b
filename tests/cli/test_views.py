"""Looking at a home: from the store alone, for people and for scripts."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from retinue.cli.text import brief, duration, plain, tokens
from retinue.store.sqlite._schema import APPLICATION_ID
from tests.cli.conftest import Lived, cut_off_database
from tests.support.command import Done

Retinue = Callable[..., Done]


def test_sessions_lists_roots_alone(retinue: Retinue, lived: Lived) -> None:
    done = retinue("sessions", "--home", str(lived.home))
    (line,) = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert line.startswith(lived.root)
    assert "completed" in line
    assert "Get to know this project" in line


def test_tree_shows_every_descendant_below_its_parent(retinue: Retinue, lived: Lived) -> None:
    done = retinue("tree", lived.root[:14], "--home", str(lived.home))
    lines = done.out.splitlines()
    assert done.code == 0
    assert len(lines) == 1 + len(lived.result.agents)
    assert lines[0].endswith(lived.root)
    (logs,) = [i for i, line in enumerate(lines) if "look through the logs" in line]
    assert all(line.lstrip("│ ").startswith(("├─ read logs/", "└─ read logs/")) for line in lines[logs + 1 : logs + 4])
    assert all("completed" in line for line in lines)


def test_tree_of_a_child_begins_with_the_child(retinue: Retinue, lived: Lived) -> None:
    child = next(line for line in lived.result.agents if line.label == "look through the logs")
    done = retinue("tree", child.id, "--json", "--home", str(lived.home))
    objects = done.objects
    assert [o["parent_id"] for o in objects] == [lived.root, child.id, child.id, child.id]
    assert {o["state"] for o in objects} == {"completed"}
    assert objects[0]["usage"]["requests"] == child.usage.requests


def test_log_is_readable(retinue: Retinue, lived: Lived) -> None:
    done = retinue("log", lived.root, "--home", str(lived.home))
    assert done.code == 0
    shown = done.out
    in_order = [
        "turn 1",
        "step 1",
        "user: Get to know",
        "call subagent",
        "result subagent agent-",
        "step 2",
        "completed",
    ]
    place = 0
    for words in in_order:
        place = shown.index(words, place)


def test_log_says_at_which_event_each_step_begins(retinue: Retinue, lived: Lived) -> None:
    shown = retinue("log", lived.root, "--home", str(lived.home)).out.splitlines()
    events = retinue("log", lived.root, "--json", "--home", str(lived.home)).objects
    starts = [f"  step {e['data']['step']}  (event {e['seq']})" for e in events if e["type"] == "step/start"]
    assert [line for line in shown if line.startswith("  step")] == starts


def test_log_shows_an_order_that_waits_and_none_that_means_nothing(
    retinue: Retinue, lived: Lived, tmp_path: Path
) -> None:
    file = tmp_path / "tree.jsonl"
    assert retinue("export", lived.root, str(file), "--home", str(lived.home)).code == 0
    assert retinue("import", str(file)).code == 0
    before = retinue("log", lived.root).out
    assert "nothing to interrupt" in retinue("interrupt", lived.root).out
    assert retinue("log", lived.root).out == before


def test_log_as_json_is_the_stored_events(retinue: Retinue, lived: Lived) -> None:
    done = retinue("log", lived.root, "--json", "--home", str(lived.home))
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert {"turn/start", "user/message", "assistant/message", "tool/result", "turn/end"} <= {e["type"] for e in events}


@pytest.mark.parametrize("command", ["tree", "log", "resume"])
def test_an_id_that_names_nothing_is_an_error(retinue: Retinue, lived: Lived, command: str) -> None:
    done = retinue(command, "nothing-like-it", "--home", str(lived.home), "--model", "ollama:x")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("retinue: SESSION_NOT_FOUND: ")


@pytest.mark.parametrize("command", ["send", "resume"])
def test_a_key_of_broken_bytes_is_refused(retinue: Retinue, lived: Lived, command: str) -> None:
    done = retinue(command, lived.root, "text", "--key", "k\udcff", "--home", str(lived.home), "--model", "ollama:x")
    assert (done.code, done.out) == (2, "")
    assert "BAD_INPUT: the key 'k\\udcff' is not text" in done.err


def test_a_prefix_of_several_sessions_is_an_error(retinue: Retinue, lived: Lived) -> None:
    done = retinue("log", "agent-", "--home", str(lived.home))
    assert (done.code, done.err.startswith("retinue: BAD_INPUT: ")) == (2, True)


def test_a_home_that_does_not_exist_has_no_sessions_and_is_not_made(retinue: Retinue, lived: Lived) -> None:
    home = lived.home.parent / "none"
    assert retinue("sessions", "--home", str(home)).out == "no sessions\n"
    assert retinue("sessions", "--json", "--home", str(home)).out == ""
    done = retinue("log", "x", "--home", str(home))
    assert (done.code, "no database" in done.err) == (2, True)
    assert not home.exists()


@pytest.mark.parametrize("arguments", [("sessions",), ("tree", "session-"), ("log", "session-")])
def test_looking_loads_no_model_client_and_takes_no_lease(lived: Lived, arguments: tuple[str, ...]) -> None:
    before = _kept(lived)
    code = (
        "import sys; from retinue.cli.group import run_command; code = run_command(sys.argv[1:])\n"
        "heavy = {'aiohttp', 'httpx', 'mcp', 'starlette', 'rich', 'retinue.model.adapters.openai_chat',\n"
        "         'retinue.compose.app', 'retinue.compose.build', 'retinue.host.host', 'retinue.agent.agent'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--home", lived.home], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
    assert _kept(lived) == before


def _kept(lived: Lived) -> list[str]:
    """What is in the home but the files that SQLite shares among its readers."""
    return sorted(path.name for path in lived.home.iterdir() if not path.name.endswith(("-shm", "-wal")))


def test_a_reader_that_leaves_is_no_failure_to_tell(lived: Lived) -> None:
    command = shlex.join([sys.executable, "-m", "retinue", "log", lived.root, "--json", "--home", str(lived.home)])
    done = subprocess.run(
        f"{command} | head -c 10 >/dev/null",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_small_texts() -> None:
    assert [tokens(n) for n in (0, 999, 1500, 2_500_000)] == ["0 tok", "999 tok", "1.5k tok", "2.5M tok"]
    assert [duration(s) for s in (0.04, 12.4, 60, 185, 7320)] == [
        "0.0 s",
        "12 s",
        "1 min 0 s",
        "3 min 5 s",
        "2 h 2 min",
    ]
    assert [brief(text, 6) for text in ("short", "a\n b", "too long")] == ["short", "a b", "too l…"]


def test_plain_text_keeps_its_lines_and_nothing_that_a_terminal_obeys() -> None:
    told = "\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x1b[1;31mred\x1b[0m\x9b2J\x00\x08\x7f \x1b(B"
    told += "done\r\nnext\tcell\u202e\ud800"
    assert plain(told) == "link red done\nnext\tcell\ufffd"
    assert brief("a\x1b[2Jb\nc", 80) == "ab c"
    assert plain("äöü 漢字 🎉") == "äöü 漢字 🎉"


def test_a_home_whose_making_was_cut_off_has_no_sessions_or_says_so(retinue: Retinue, tmp_path: Path) -> None:
    home = tmp_path / "cut"
    home.mkdir()
    path = home / "retinue.db"
    connection = cast(Any, apsw.Connection(str(path)))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert retinue("sessions", "--home", str(home)).out == "no sessions\n"
    assert retinue("tree", "x", "--home", str(home)).err.startswith("retinue: SESSION_NOT_FOUND: ")

    other = tmp_path / "hot"
    other.mkdir()
    cut_off_database(tmp_path, other / "retinue.db")
    done = retinue("sessions", "--home", str(other))
    assert (done.code, done.out) == (1, "")
    assert "cut off" in done.err
    assert "retinue run" in done.err
