"""Finding files by name and by content, in a process that can be stopped."""

import gc
import os
import re
import time
import warnings
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.plugins.files import file_tools
from retinue.plugins.files._scan import glob_filter, glob_regex
from retinue.plugins.files._worker import ask
from retinue.plugins.permissions import Permissions
from tests.plugins.calls import ToolBox

BACKTRACKS = r"(a+)+$"


@pytest.fixture
def box(tmp_path: Path) -> ToolBox:
    cwd = tmp_path / "project"
    for name, content in {
        "README.md": "# Title\nsee src\n",
        "src/app.py": "import os\n\n\ndef main():\n    return os.getcwd()\n",
        "src/lib/util.py": "def util():\n    pass  # os\n",
        "src/lib/data.json": '{"os": 1}\n',
        "tests/test_app.py": "def test_main():\n    assert True\n",
        ".github/ci.yml": "os: linux\n",
        ".git/config": "os\n",
        "node_modules/x/index.js": "os\n",
        "bin/tool": "\0os\n",
    }.items():
        path = cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return ToolBox(file_tools(Permissions(), search_timeout_s=20), cwd)


def _workers() -> set[str]:
    """Process ids of searches that this process runs."""
    found: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"_scan.py" in command and parent == str(os.getpid()):
            found.add(pid)
    return found


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.md", ["README.md"]),
        ("**/*.py", ["src/app.py", "src/lib/util.py", "tests/test_app.py"]),
        ("src/*", ["src/app.py"]),
        ("src/**", ["src/app.py", "src/lib/data.json", "src/lib/util.py"]),
        ("**/{app,util}.py", ["src/app.py", "src/lib/util.py"]),
        ("**/test_*.py", ["tests/test_app.py"]),
        ("src/*/", ["src/lib/"]),
        (".github/*.yml", [".github/ci.yml"]),
        ("src/lib/[!u]*", ["src/lib/data.json"]),
        ("nothing", ["(no matches)"]),
    ],
)
async def test_files_are_found_by_pattern(pattern: str, found: list[str], box: ToolBox) -> None:
    lines = (await box.text("glob", pattern=pattern)).split("\n")
    assert [line for line in lines if not line.startswith("[")] == found


async def test_version_control_is_never_searched_and_dependencies_only_on_request(box: ToolBox) -> None:
    text = await box.text("glob", pattern="**/*")
    assert ".git/config" not in text
    assert "index.js" not in text
    assert "[not searched: node_modules" in text
    assert "node_modules/x/index.js" in await box.text("glob", pattern="node_modules/**")
    assert "index.js:1:os" in await box.text("grep", pattern="os", path="node_modules")


async def test_a_pattern_may_lead_elsewhere(box: ToolBox, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x.txt").touch()
    expected = str(tmp_path / "other/x.txt")
    assert await box.text("glob", pattern="../other/*.txt") == expected
    assert await box.text("glob", pattern=f"{tmp_path}/other/*") == expected
    assert (await box.refusal("glob", pattern="*", path="absent")).name == "NOT_FOUND"
    assert (await box.refusal("glob", pattern="*", path="README.md")).name == "NOT_A_FOLDER"


async def test_results_are_bounded_and_say_so(box: ToolBox) -> None:
    for n in range(30):
        path = box.caller.cwd / f"many/{n:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("hit\nhit\n")
        os.utime(path, ns=(n, n))
    text = await box.text("glob", pattern="many/*", limit=3)
    assert text.split("\n") == [
        *("many/00.txt", "many/01.txt", "many/02.txt"),
        "[only the first 3 are shown; narrow the search to see others]",
    ]
    text = await box.text("glob", pattern="many/*", sort="mtime", limit=2)
    assert text.startswith("many/29.txt\nmany/28.txt\n[only")
    text = await box.text("grep", pattern="hit", path="many", limit=3)
    assert text.startswith("many/00.txt:1:hit\nmany/00.txt:2:hit\nmany/01.txt:1:hit\n[only the first 3")
    assert "[only" in await box.text("grep", pattern="hit", path="many", output="files", limit=29)
    assert "[only" not in await box.text("grep", pattern="hit", path="many", output="files", limit=30)


async def test_lines_are_found_by_expression(box: ToolBox) -> None:
    assert await box.text("grep", pattern=r"\bdef \w+", path="src", glob="*.py") == (
        "src/app.py:4:def main():\nsrc/lib/util.py:1:def util():"
    )
    assert await box.text("grep", pattern="OS", path="src/lib", ignore_case=True, output="count") == (
        "src/lib/data.json:1\nsrc/lib/util.py:1"
    )
    assert await box.text("grep", pattern="^import", path="src", output="files") == "src/app.py"
    assert await box.text("grep", pattern="os", path="src/app.py", context=1) == (
        "src/app.py:1:import os\nsrc/app.py-2-\n--\nsrc/app.py-4-def main():\nsrc/app.py:5:    return os.getcwd()"
    )
    assert await box.text("grep", pattern="os", path=".", glob="src/*.py", output="files") == (
        "src/app.py\n[not searched: node_modules (start the search inside one to see it)]"
    )
    assert await box.text("grep", pattern="os", path="bin") == "(no matches)"
    assert (await box.refusal("grep", pattern="(")).name == "INVALID_PATTERN"
    assert (await box.refusal("grep", pattern="x", path="absent")).name == "NOT_FOUND"


async def test_links_are_not_followed_out_of_the_tree(box: ToolBox, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("needle\n")
    (box.caller.cwd / "folder").symlink_to(tmp_path / "outside")
    (box.caller.cwd / "file").symlink_to(tmp_path / "outside/f")
    (box.caller.cwd / "loop").symlink_to(".")
    assert await box.text("grep", pattern="needle") == "(no matches)\n[not searched: node_modules " + (
        "(start the search inside one to see it)]"
    )
    assert (await box.text("glob", pattern="**/f*")).split("\n")[0] == "file"


@pytest.mark.exploration
async def test_a_pattern_that_backtracks_for_ever_is_stopped(box: ToolBox) -> None:
    (box.caller.cwd / "bad.txt").write_text("a" * 60 + "b\n")
    (box.caller.cwd / "a.txt").write_text("a\n")
    tools = ToolBox(file_tools(Permissions(), search_timeout_s=3), box.caller.cwd)
    text = await tools.text("grep", pattern=BACKTRACKS)
    assert text.startswith("a.txt:1:a\n[stopped after 3 s")
    assert _workers() == set()


@pytest.mark.exploration
async def test_the_loop_stays_free_while_a_pattern_backtracks(box: ToolBox) -> None:
    (box.caller.cwd / "bad.txt").write_text("a" * 60 + "b\n")
    tools = ToolBox(file_tools(Permissions(), search_timeout_s=3), box.caller.cwd)
    longest = 0.0
    async with anyio.create_task_group() as tg:

        async def watch() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await anyio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        tg.start_soon(watch)
        await tools.text("grep", pattern=BACKTRACKS)
        tg.cancel_scope.cancel()
    assert longest < 1.5


async def test_a_cancelled_search_leaves_no_process(box: ToolBox) -> None:
    (box.caller.cwd / "bad.txt").write_text("a" * 60 + "b\n")
    async with anyio.create_task_group() as tg:
        tg.start_soon(lambda: box.text("grep", pattern=BACKTRACKS))
        with anyio.fail_after(10):
            # Another process: nothing here could set an event.
            while not _workers():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tg.cancel_scope.cancel()
    assert _workers() == set()


def test_a_search_that_is_cancelled_while_its_process_starts_has_waited_for_its_end() -> None:
    async def cancelled(steps: int) -> None:
        async with anyio.create_task_group() as tg:
            for _ in range(3):
                tg.start_soon(ask, {}, 5.0)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            tg.cancel_scope.cancel()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for steps in range(12):
            anyio.run(cancelled, steps)
        gc.collect()
    assert [str(warning.message) for warning in told] == []


async def test_many_searches_at_once_all_answer(box: ToolBox) -> None:
    texts: list[str] = []

    async def one() -> None:
        texts.append(await box.text("grep", pattern="^import", path="src", output="files"))

    async with anyio.create_task_group() as tg:
        for _ in range(12):
            tg.start_soon(one)
    assert texts == ["src/app.py"] * 12


async def test_undecodable_names_are_shown_legibly(box: ToolBox) -> None:
    name = os.fsencode(box.caller.cwd) + b"/bad-\xff.txt"
    with open(name, "w") as file:
        file.write("needle\n")
    assert await box.text("grep", pattern="needle", path=".", glob="*.txt") == (
        "bad-\ufffd.txt:1:needle\n[not searched: node_modules (start the search inside one to see it)]"
    )


async def test_nothing_of_the_searched_tree_is_run(box: ToolBox) -> None:
    for name in ("json.py", "re.py", "sitecustomize.py", "usercustomize.py"):
        (box.caller.cwd / name).write_text("import os; os.mkdir('ran')\n")
    await box.text("grep", pattern="x")
    assert not (box.caller.cwd / "ran").exists()


def test_a_filter_without_slash_matches_names_at_any_depth() -> None:
    assert glob_filter("*.py")("a/b/c.py")
    assert not glob_filter("*.py")("a/b.py/c")
    assert glob_filter("src/**/*.py")("src/c.py")
    assert not glob_filter("src/*.py")("src/a/c.py")


@pytest.mark.parametrize(
    ("pattern", "matches", "does_not"),
    [("[+--]", ",", "a"), ("[a&&b]", "&", "c"), ("[[x]", "[", "y"), ("[---]", "-", "a")],
)
def test_doubled_signs_in_brackets_are_themselves(pattern: str, matches: str, does_not: str) -> None:
    assert glob_regex(pattern).match(matches)
    assert not glob_regex(pattern).match(does_not)


@given(st.text(alphabet="a*?[]{},!/.\\-", max_size=12), st.text(alphabet="a/.-", max_size=8))
def test_any_pattern_is_a_matcher_or_refused(pattern: str, path: str) -> None:
    try:
        matcher = glob_regex(pattern)
    except ValueError:
        return
    assert isinstance(matcher, re.Pattern)
    matcher.match(path)


@given(st.text(alphabet="ab.+^$(|", min_size=1, max_size=8))
def test_a_pattern_without_wildcards_matches_itself_alone(name: str) -> None:
    assert glob_regex(name).match(name)
    assert not glob_regex(name).match(name + "x")
