"""The demo: real work by a scripted model."""

import re
import shutil
from pathlib import Path

from retinue.cli.demo.copying import copy_bundled
from tests.support.command import Place


def test_the_demo_needs_no_key_and_answers_from_the_files(place: Place) -> None:
    copy_bundled(place.root / "tree")
    done = place.retinue("demo", "--output", "json", "--keep")
    assert done.code == 0
    assert "scripted" in done.err

    code = list((place.root / "tree").rglob("*.py"))
    logs = list((place.root / "tree" / "logs").glob("*.log"))
    lines = sum(len(path.read_text().splitlines()) for path in code)
    errors = sum(path.read_text().count(" ERROR ") for path in logs)
    output = done.result["output"]
    assert f"{len(code)} Python files" in output
    assert f"in {lines} lines" in output
    assert f"Errors: {errors} in {len(logs)} logs" in output

    agents = done.result["agents"]
    assert len(agents) == 3 + len(logs)
    assert {agent["outcome"] for agent in agents} == {"completed"}

    (look,) = re.findall(r"retinue (tree --home (\S+) \S+)", done.err)
    try:
        shown = place.retinue(*look[0].split())
        assert (shown.code, len(shown.out.splitlines())) == (0, 1 + len(agents))
    finally:
        shutil.rmtree(Path(look[1]).parent)


def test_what_is_in_the_files_decides_the_answer(place: Place) -> None:
    tree = place.root / "tree"
    copy_bundled(tree)
    (tree / "logs" / "monday.log").write_text("07:00:00 ERROR crane/old rust\n" * 9)
    (tree / "harbour" / "tides.py").write_text("# TODO(cyd): tides\n" + "\n\ndef tide():\n    return 0\n" * 30)
    done = place.retinue("demo", "--from", str(tree))

    assert done.code == 0
    assert "6 Python files with 41 functions" in done.out
    assert "harbour/tides.py" in done.out
    assert "1 for cyd" in done.out
    assert "the worst is logs/monday.log with 9, and crane/old had most (9)" in done.out
