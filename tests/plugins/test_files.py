"""Reading, writing and editing real files."""

import base64
import os
import stat
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import SessionId
from retinue.errors import ToolFailure
from retinue.model.content import Image, text_of
from retinue.plugins.files import Seen, file_tools, sections
from retinue.plugins.files._change import difference
from retinue.plugins.files._replace import replaced
from retinue.plugins.permissions import Permissions
from retinue.tools.tool import CallKey, ToolContext
from tests.plugins.calls import ToolBox

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def box(tmp_path: Path) -> ToolBox:
    cwd = tmp_path / "project"
    cwd.mkdir()
    return ToolBox(file_tools(Permissions(home=tmp_path / "home")), cwd)


def _file(box: ToolBox, name: str, content: str | bytes) -> Path:
    path = box.caller.cwd / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- read ---


async def test_lines_are_numbered(box: ToolBox) -> None:
    _file(box, "a.txt", "one\ntwo\r\nthree")
    assert await box.text("read", path="a.txt") == "     1\tone\n     2\ttwo\n     3\tthree"


async def test_a_part_says_how_to_go_on(box: ToolBox) -> None:
    _file(box, "a.txt", "".join(f"line {n}\n" for n in range(1, 11)))
    assert await box.text("read", path="a.txt", offset=4, limit=2) == (
        "     4\tline 4\n     5\tline 5\n[lines 4-5 of 10; use offset 6 to go on]"
    )
    assert (await box.text("read", path="a.txt", offset=10)).endswith("[lines 10-10 of 10]")
    assert (await box.refusal("read", path="a.txt", offset=11)).name == "OUT_OF_RANGE"


async def test_a_large_file_is_shown_in_bounded_pages_that_cover_it(box: ToolBox) -> None:
    lines = [f"{n} " + "ü" * (n % 300) for n in range(1, 3001)]
    _file(box, "big.txt", "\n".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        page = await box.text("read", path="big.txt", offset=len(seen) + 1)
        assert len(page.encode()) < 50_000
        seen += [line.split("\t")[1] for line in page.split("\n") if "\t" in line]
    assert seen == lines


async def test_a_very_long_line_is_cut_and_says_so(box: ToolBox) -> None:
    _file(box, "min.js", "x" * 100_000)
    page = await box.text("read", path="min.js")
    assert len(page) < 3000
    assert "98000 more characters" in page


async def test_an_image_is_shown_as_one(box: ToolBox) -> None:
    _file(box, "dot", PNG)
    result = await box.call("read", path="dot")
    assert result.content[1] == Image("image/png", base64.b64encode(PNG).decode())


async def test_what_is_no_text_is_refused(box: ToolBox) -> None:
    _file(box, "a.bin", b"\x7fELF\0\0")
    _file(box, "dir/Makefile", "all:")
    os.mkfifo(box.caller.cwd / "pipe")
    assert (await box.refusal("read", path="a.bin")).name == "BINARY_FILE"
    folder = await box.refusal("read", path="dir")
    assert (folder.name, "Makefile" in str(folder), "`glob`" in str(folder)) == ("IS_A_FOLDER", True, True)
    missing = await box.refusal("read", path="dir/makefile")
    assert (missing.name, "Makefile" in str(missing)) == ("NOT_FOUND", True)
    assert (await box.refusal("read", path="pipe")).name == "NOT_A_FILE"
    assert (await box.refusal("read", path="a.bin/x")).name == "NOT_A_FOLDER"


async def test_an_empty_file_says_so(box: ToolBox) -> None:
    _file(box, "a", "")
    assert "is empty" in await box.text("read", path="a")


async def test_the_home_cannot_be_read(box: ToolBox, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/retinue.db").write_text("keys")
    (box.caller.cwd / "link").symlink_to(tmp_path / "home")
    for path in ("../home/retinue.db", "link/retinue.db"):
        assert (await box.refusal("read", path=path)).name == "PERMISSION_DENIED"
    assert "keys" not in await box.text("grep", pattern="keys", path="..")
    assert (await box.refusal("grep", pattern="keys", path="link")).name == "PERMISSION_DENIED"
    assert "retinue.db" not in await box.text("glob", pattern="**", path="..")


# --- write ---


async def test_a_new_file_is_created_with_its_folders(box: ToolBox) -> None:
    said = await box.text("write", path="a/b/c.txt", content="one\ntwo")
    path = box.caller.cwd / "a/b/c.txt"
    assert path.read_text() == "one\ntwo"
    assert f"created {path} (2 lines, 7 bytes)" == said
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert [p.name for p in path.parent.iterdir()] == ["c.txt"]


async def test_an_unread_file_is_not_overwritten(box: ToolBox) -> None:
    path = _file(box, "a.txt", "precious")
    assert (await box.refusal("write", path="a.txt", content="x")).name == "FILE_NOT_READ"
    assert (await box.refusal("edit", path="a.txt", old_string="p", new_string="x")).name == "FILE_NOT_READ"
    assert path.read_text() == "precious"


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(box: ToolBox) -> None:
    path = _file(box, "a.txt", "one")
    await box.call("read", path="a.txt")
    path.write_text("two")
    assert (await box.refusal("write", path="a.txt", content="x")).name == "FILE_CHANGED"
    assert (await box.refusal("edit", path="a.txt", old_string="two", new_string="x")).name == "FILE_CHANGED"
    await box.call("read", path="a.txt")
    await box.call("write", path="a.txt", content="x")
    assert path.read_text() == "x"


async def test_a_binary_file_is_overwritten_only_if_it_was_seen(box: ToolBox) -> None:
    path = _file(box, "a.bin", b"\0\1")
    assert (await box.refusal("write", path="a.bin", content="x")).name == "BINARY_FILE"
    assert path.read_bytes() == b"\0\1"
    dot = _file(box, "dot.png", PNG)
    await box.call("read", path="dot.png")
    await box.call("write", path="dot.png", content="x")
    assert dot.read_text() == "x"


async def test_a_new_time_stamp_alone_is_no_change(box: ToolBox) -> None:
    path = _file(box, "a.txt", "one")
    await box.call("read", path="a.txt")
    os.utime(path, ns=(1, 1))
    await box.call("edit", path="a.txt", old_string="one", new_string="two")
    assert path.read_text() == "two"


async def test_own_writes_count_as_read_and_a_siblings_do_not(box: ToolBox) -> None:
    sibling = box.sibling("session-b")
    await box.call("write", path="a.txt", content="one")
    await box.call("edit", path="a.txt", old_string="one", new_string="two")
    assert (await sibling.refusal("edit", path="a.txt", old_string="two", new_string="x")).name == "FILE_NOT_READ"
    await sibling.call("read", path="a.txt")
    await box.call("edit", path="a.txt", old_string="two", new_string="three")
    assert (await sibling.refusal("edit", path="a.txt", old_string="three", new_string="x")).name == "FILE_CHANGED"


def test_what_agents_have_seen_outlives_them_for_a_while_and_not_for_ever(tmp_path: Path) -> None:
    seen, path = Seen(), tmp_path / "a.txt"
    ids = [SessionId(f"session-{number}") for number in range(300)]
    for id in ids:
        seen.note(id, path, b"one")
        seen.rest(id)
    assert [id for id in ids if seen.has(id, path)] == ids[-256:]
    seen.note(ids[60], path, b"one")
    for id in ids[50:] * 2:
        if id != ids[60]:
            seen.rest(id)
    assert seen.has(ids[60], path)


async def test_siblings_that_edit_at_once_never_lose_a_change(box: ToolBox) -> None:
    path = _file(box, "a.txt", "".join(f"slot {n}: free\n" for n in range(12)))
    outcomes: list[str] = []

    async def change(agent: ToolBox, slot: int) -> None:
        while True:
            await agent.call("read", path="a.txt")
            try:
                await agent.call(
                    "edit", path="a.txt", old_string=f"slot {slot}: free", new_string=f"slot {slot}: {slot}"
                )
            except ToolFailure as refusal:
                outcomes.append(refusal.name)
                continue
            return

    async with anyio.create_task_group() as tg:
        for n in range(12):
            tg.start_soon(change, box.sibling(f"session-{n}"), n)
    assert path.read_text() == "".join(f"slot {n}: {n}\n" for n in range(12))
    assert set(outcomes) <= {"FILE_CHANGED"}


async def test_replacing_keeps_mode_line_ends_and_byte_order_mark(box: ToolBox) -> None:
    path = _file(box, "run.bat", "\ufeffone\r\ntwo\r\n")
    path.chmod(0o751)
    await box.call("read", path="run.bat")
    await box.call("write", path="run.bat", content="three\nfour\n")
    assert path.read_bytes() == "\ufeffthree\r\nfour\r\n".encode()
    await box.call("edit", path="run.bat", old_string="three\nfour", new_string="five\nsix")
    assert path.read_bytes() == "\ufefffive\r\nsix\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o751


async def test_a_link_stays_a_link_when_its_file_is_edited(box: ToolBox) -> None:
    path = _file(box, "real.txt", "one")
    (box.caller.cwd / "link").symlink_to("real.txt")
    await box.call("read", path="link")
    await box.call("edit", path="link", old_string="one", new_string="two")
    assert (box.caller.cwd / "link").is_symlink()
    assert path.read_text() == "two"


async def test_bytes_that_are_no_utf8_survive_an_edit(box: ToolBox) -> None:
    path = _file(box, "latin.txt", b"caf\xe9\nline\n")
    page = await box.text("read", path="latin.txt")
    assert "caf\ufffd" in page
    said = await box.text("edit", path="latin.txt", old_string="line", new_string="row")
    assert path.read_bytes() == b"caf\xe9\nrow\n"
    assert said.encode()


@pytest.mark.parametrize("path", ["../x", "/etc/retinue-test", "link/x"])
async def test_writing_outside_the_folder_is_refused(path: str, box: ToolBox, tmp_path: Path) -> None:
    (box.caller.cwd / "link").symlink_to(tmp_path)
    assert (await box.refusal("write", path=path, content="x")).name == "PERMISSION_DENIED"
    assert not (tmp_path / "x").exists()


async def test_a_call_without_an_agent_is_refused(box: ToolBox) -> None:
    key = CallKey(session_id=SessionId("s"), seq=1, index=0)
    context = ToolContext(caller=None, key=key, name="read", call_id="c", turn=1, step=1)
    with pytest.raises(ToolFailure) as caught:
        await box.tools["read"].body(context, {"path": "x"})
    assert caught.value.name == "NO_CALLER"


# --- edit ---


async def test_an_edit_shows_what_the_file_reads_now(box: ToolBox) -> None:
    _file(box, "a.py", "def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    await box.call("read", path="a.py")
    result = await box.call("edit", path="a.py", old_string="return 2", new_string="return 3")
    assert "     6\t    return 3" in text_of(result.content)
    assert result.meta == {"path": str(box.caller.cwd / "a.py"), "did": "edited", "line": 6}


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12), st.booleans())
def test_the_difference_of_a_replaced_file_leads_from_the_old_to_the_new(
    old: list[str], new: list[str], ended: bool
) -> None:
    before, after = ("\r\n".join(lines) + ("\r\n" if ended and lines else "") for lines in (old, new))
    facts = difference(before.encode(), after.encode())
    before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    if before == after:
        assert facts == {}
        return
    line, old_text, new_text = facts["line"], facts["old_text"], facts["new_text"]
    assert isinstance(line, int)
    assert isinstance(old_text, str)
    assert isinstance(new_text, str)
    start = len("".join(before.splitlines(keepends=True)[: max(0, line - 4)]))
    assert before[start:].startswith(old_text)
    assert before[:start] + new_text + before[start + len(old_text) :] == after


def test_no_difference_is_kept_of_what_is_no_text_or_much() -> None:
    assert difference(b"a\0b", b"text") == {}
    assert difference(b"a\n" * 20_000, b"b\n" * 20_000) == {}
    assert difference(b"a" * 3_000_000, b"b") == {}


async def test_an_ambiguous_edit_names_the_places(box: ToolBox) -> None:
    path = _file(box, "a.txt", "x = 1\ny = 2\nx = 1\n")
    await box.call("read", path="a.txt")
    refusal = await box.refusal("edit", path="a.txt", old_string="x = 1", new_string="x = 3")
    assert (refusal.name, "2 times, at lines 1, 3" in str(refusal)) == ("EDIT_NOT_UNIQUE", True)
    await box.call("edit", path="a.txt", old_string="x = 1", new_string="x = 3", replace_all=True)
    assert path.read_text() == "x = 3\ny = 2\nx = 3\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("if a:\n  return 1", "other whitespace"),
        ("    return 11", "     2\t    return 1"),
        ("     1\tif a:", "line numbers"),
        ("nothing like it at all 12345", "similar"),
    ],
)
def test_text_that_is_not_there_gets_the_nearest(old: str, said: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        replaced("if a:\n    return 1\nelse:\n    return 22\n", old, "x", every=False)
    assert caught.value.name == "EDIT_NOT_FOUND"
    assert said in str(caught.value)


@pytest.mark.parametrize(("old", "new", "code"), [("", "x", "EDIT_EMPTY"), ("a", "a", "EDIT_SAME")])
def test_an_edit_that_means_nothing_is_refused(old: str, new: str, code: str) -> None:
    with pytest.raises(ToolFailure) as caught:
        replaced("abc", old, new, every=False)
    assert caught.value.name == code


_text = st.text(alphabet="ab \n", max_size=30)


@given(_text, st.text(alphabet="ab \n", min_size=1, max_size=4), _text, st.booleans())
def test_an_edit_is_exact_replacement(text: str, old: str, new: str, every: bool) -> None:
    try:
        after, places = replaced(text, old, new, every=every)
    except ToolFailure as refusal:
        count = text.count(old)
        expected = {"EDIT_SAME": old == new, "EDIT_NOT_FOUND": count == 0, "EDIT_NOT_UNIQUE": count > 1 and not every}
        assert expected[refusal.name]  # noqa: PT017
        return
    assert after == text.replace(old, new)
    assert len(places) == text.count(old)
    assert all(after.startswith(new, place) for place in places)


@given(_text, st.text(alphabet="ab \n", min_size=1, max_size=4), _text)
def test_an_edit_means_the_same_with_other_line_ends(text: str, old: str, new: str) -> None:
    crlf = text.replace("\n", "\r\n")

    def outcome(content: str) -> str:
        try:
            return replaced(content, old, new, every=True)[0]
        except ToolFailure as refusal:
            return refusal.name

    plain = outcome(text)
    if plain.startswith("EDIT_") or "\n" not in text:
        assert outcome(crlf) == plain
    else:
        assert outcome(crlf) == plain.replace("\n", "\r\n")


def test_guidance_is_gated_on_each_tool() -> None:
    assert [(s.name, s.order, s.tool) for s in sections()] == [
        ("tool:read", 100, "read"),
        ("tool:write", 101, "write"),
        ("tool:edit", 102, "edit"),
        ("tool:glob", 103, "glob"),
        ("tool:grep", 104, "grep"),
    ]


def test_only_tools_that_change_nothing_overlap_others(tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in file_tools(Permissions())}
    assert tools["read"].is_safe({"path": "x"})
    assert tools["glob"].is_safe({"pattern": "x"})
    assert tools["grep"].is_safe({"pattern": "x"})
    assert not tools["write"].is_safe({"path": "x", "content": ""})
    assert not tools["edit"].is_safe({"path": "x", "old_string": "a", "new_string": "b"})
