"""`prune`, `export`, `import` and `backup` as commands: what they print, ask, refuse and leave behind."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Lived
from tests.support.command import Done

Retinue = Callable[..., Done]


@pytest.fixture
def home(lived: Lived, tmp_path: Path) -> Path:
    """The home that the command means, with one finished tree in it."""
    shutil.copytree(lived.home, tmp_path / "home")
    return tmp_path / "home"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_tree_is_exported_pruned_and_imported_again(retinue: Retinue, home: Path, lived: Lived) -> None:
    before = retinue("tree", lived.root).out
    done = retinue("export", lived.root[:15], "tree.jsonl")
    assert (done.code, done.out) == (0, f"{Path('tree.jsonl').absolute()}  7 sessions\n")

    listed = retinue("prune", lived.root, "--dry-run")
    assert (listed.code, listed.out.split()[0]) == (0, lived.root)
    assert "7 sessions" in listed.out
    assert retinue("tree", lived.root).out == before
    pruned = retinue("prune", lived.root, "--yes")
    assert (pruned.code, pruned.out, pruned.err) == (0, listed.out, "removed 1 tree\n")
    assert retinue("sessions").out == "no sessions\n"

    done = retinue("import", "tree.jsonl")
    assert (done.code, done.out) == (0, f"{lived.root}  7 sessions\n")
    assert retinue("tree", lived.root).out == before
    assert retinue("export", lived.root, "again.jsonl").code == 0
    assert Path("again.jsonl").read_bytes() == Path("tree.jsonl").read_bytes()


def test_prune_says_which_trees_it_needs(retinue: Retinue, home: Path, lived: Lived) -> None:
    for arguments in ((), (lived.root, "--older-than", "1"), ("--older-than", "-1")):
        done = retinue("prune", *arguments, "--yes")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("retinue: USAGE: ")
    child = retinue("tree", lived.root, "--json").out.splitlines()[1].split('"')[3]
    done = retinue("prune", child, "--yes")
    assert (done.code, "trees are kept whole" in done.err) == (2, True)
    assert lived.root in retinue("sessions").out


def test_prune_asks_before_it_removes(
    retinue: Retinue, home: Path, lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = retinue("prune", lived.root)
    assert (done.code, done.err) == (2, "nothing was removed; say --yes to remove this tree\n")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    done = retinue("prune", lived.root)
    assert (done.code, "Remove this tree for good?" in done.err) == (2, True)
    assert lived.root in retinue("sessions").out
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert retinue("prune", lived.root).code == 0
    assert retinue("sessions").out == "no sessions\n"


def test_prune_by_age_takes_what_is_older(retinue: Retinue, home: Path, lived: Lived) -> None:
    done = retinue("prune", "--older-than", "1", "--yes")
    assert (done.code, done.out, done.err) == (0, "", "no tree is that old\n")
    assert retinue("prune", "--older-than", "0", "--yes").err == "removed 1 tree\n"


def test_a_home_that_is_not_there_is_not_made(retinue: Retinue, tmp_path: Path) -> None:
    for arguments in (("prune", "x", "--yes"), ("export", "x", "file"), ("backup", "file")):
        done = retinue(*arguments)
        assert done.code in (1, 2)
        assert "there is no database" in done.err
    assert not (tmp_path / "home").exists()
    assert not Path("file").exists()


def test_an_import_makes_the_home_it_needs(retinue: Retinue, home: Path, lived: Lived, tmp_path: Path) -> None:
    retinue("export", lived.root, "tree.jsonl")
    done = retinue("import", "tree.jsonl", "--home", str(tmp_path / "new"))
    assert done.code == 0
    assert lived.root in retinue("sessions", "--home", str(tmp_path / "new")).out


@pytest.mark.parametrize("content", [b"", b"Dear diary\n", None])
def test_a_file_that_is_no_export_is_refused(retinue: Retinue, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        Path("file").write_bytes(content)
    done = retinue("import", "file")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("retinue: BAD_EXPORT: " if content is not None else "retinue: BAD_INPUT: ")


def test_what_is_stored_already_is_not_imported(retinue: Retinue, home: Path, lived: Lived) -> None:
    retinue("export", lived.root, "tree.jsonl")
    done = retinue("import", "tree.jsonl")
    assert (done.code, done.err.split(":")[1]) == (2, " SESSION_ALREADY_EXISTS")


def test_a_backup_can_be_looked_at_as_a_store(retinue: Retinue, home: Path, lived: Lived) -> None:
    done = retinue("backup", "copy.db")
    size = Path("copy.db").stat().st_size
    assert (done.code, done.out) == (0, f"{Path('copy.db').absolute()}  {size} bytes\n")
    copy = retinue("tree", lived.root, "--store", f"sqlite:///{Path('copy.db').absolute()}")
    assert copy.out == retinue("tree", lived.root).out


@pytest.mark.parametrize("command", [("backup",), ("export", "ROOT")])
def test_no_file_is_replaced_by_accident_and_the_database_never(
    retinue: Retinue, home: Path, lived: Lived, command: tuple[str, ...]
) -> None:
    arguments = [lived.root if word == "ROOT" else word for word in command]
    Path("file").write_bytes(b"precious")
    done = retinue(*arguments, "file")
    assert (done.code, "exists already" in done.err, "--force" in done.err) == (2, True, True)
    assert Path("file").read_bytes() == b"precious"
    assert retinue(*arguments, "file", "--force").code == 0
    assert Path("file").read_bytes() != b"precious"
    Path("link").symlink_to(home / "retinue.db")
    for own in (str(home / "retinue.db"), str(home / "retinue.db-wal"), "link"):
        done = retinue(*arguments, own, "--force")
        assert (done.code, "is the database itself" in done.err) == (2, True)
    assert lived.root in retinue("sessions").out
