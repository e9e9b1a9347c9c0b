"""Long results: excerpts, spill files, undecodable bytes."""

import stat
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import SessionId
from retinue.model.content import Image, Text, text_of
from retinue.tools.output import bound_result, clean_text, cut_head, cut_tail, decode_output, excerpt, spill_path
from retinue.tools.tool import CallKey, ToolResult

KEY = CallKey(session_id=SessionId("session-1"), seq=7, index=2)


async def test_a_short_result_is_the_same_object(tmp_path: Path) -> None:
    result = ToolResult.text("short")
    assert await bound_result(result, limit=5, folder=tmp_path, key=KEY) is result
    assert list(tmp_path.iterdir()) == []


async def test_a_long_result_keeps_head_and_tail_and_the_whole_in_a_private_file(tmp_path: Path) -> None:
    text = "".join(f"line {n} ü\n" for n in range(20_000))
    image = Image("image/png", "AA==")
    result = ToolResult(content=(Text(text[:1000]), image, Text(text[1000:])), meta={"a": 1})

    bounded = await bound_result(result, limit=50_000, folder=tmp_path / "spill", key=KEY)

    path = tmp_path / "spill" / "session-1" / "7-2.txt"
    assert path.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    shown = text_of(bounded.content)
    assert len(shown.encode()) <= 50_000
    head, gap, tail = (
        shown.partition("[...")[0],
        shown.partition("[...")[2].partition("...]")[0],
        shown.split("...]\n")[1],
    )
    assert text.startswith(head)
    assert text.endswith(tail)
    omitted = len(text.encode()) - len(head.encode()) - len(tail.encode())
    assert f"{omitted} of {len(text.encode())} bytes left out" in gap
    assert str(path) in gap
    assert "`read`" in gap
    assert bounded.content[1:] == (image,)
    assert bounded.meta == {"a": 1, "spilled_to": str(path)}
    assert await bound_result(result, limit=50_000, folder=tmp_path / "spill", key=KEY) == bounded
    assert [p.name for p in path.parent.iterdir()] == ["7-2.txt"]


async def test_the_result_of_a_call_that_had_ended_is_not_lost_to_a_cancellation(tmp_path: Path) -> None:
    kept: list[ToolResult] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        kept.append(await bound_result(ToolResult.text("x" * 60_000), limit=50_000, folder=tmp_path, key=KEY))
    assert Path(str(kept[0].meta["spilled_to"])).read_text() == "x" * 60_000


async def test_a_file_that_cannot_be_written_costs_only_the_pointer(tmp_path: Path) -> None:
    blocked = tmp_path / "spill"
    blocked.write_text("a file, not a folder")
    for folder in (blocked, None):
        bounded = await bound_result(ToolResult.text("x" * 9000), limit=5000, folder=folder, key=KEY)
        assert "could not be kept" in text_of(bounded.content)
        assert len(text_of(bounded.content)) <= 5000
        assert not bounded.is_error


async def test_a_link_in_the_place_of_the_spill_file_is_replaced_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    path = spill_path(tmp_path, KEY)
    path.parent.mkdir()
    path.symlink_to(target)
    await bound_result(ToolResult.text("x" * 9000), limit=5000, folder=tmp_path, key=KEY)
    assert target.read_text() == "keep"
    assert path.read_text() == "x" * 9000


async def test_lone_surrogates_do_not_reach_the_wire(tmp_path: Path) -> None:
    bounded = await bound_result(ToolResult.text("name\udcff"), limit=100, folder=tmp_path, key=KEY)
    assert text_of(bounded.content) == "name\ufffd"
    await bound_result(ToolResult.text("name\udcff" * 1000), limit=2000, folder=tmp_path, key=KEY)


@pytest.mark.parametrize("session", ["..", ".", "a/../../b", "/etc"])
def test_a_session_id_cannot_lead_out_of_the_folder(session: str, tmp_path: Path) -> None:
    path = spill_path(tmp_path, CallKey(session_id=SessionId(session), seq=1, index=0))
    assert path.resolve().parent.parent == tmp_path.resolve()


def test_program_output_becomes_text() -> None:
    assert decode_output(b"a\r\nb\x00\xff\x1b[1m\tc\n") == "a\nb\ufffd\ufffd\x1b[1m\tc\n"


_any_text = st.text(st.characters(exclude_categories=["Cs"]) | st.just("\n"))


@given(_any_text, st.integers(0, 60))
def test_cuts_are_whole_characters_and_ends_of_the_text(text: str, limit: int) -> None:
    data = text.encode()
    head, tail = cut_head(data, limit), cut_tail(data, limit)
    assert len(head) <= limit or len(data) <= limit
    assert len(tail) <= limit or len(data) <= limit
    assert text.startswith(head.decode())
    assert text.endswith(tail.decode())
    if len(data) > limit >= 4:
        assert len(head) >= limit - limit // 4 - 4
        assert len(tail) >= limit - limit // 4 - 4


@given(_any_text, st.integers(1000, 1200), st.integers(1, 30))
def test_an_excerpt_is_bounded_and_says_exactly_what_is_missing(text: str, limit: int, times: int) -> None:
    text *= times
    shown = excerpt(text, limit, Path("/spill/x.txt"))
    if len(text.encode()) <= limit:
        assert shown == text
    else:
        assert len(shown.encode()) <= limit
        assert "/spill/x.txt" in shown
        assert clean_text(shown) == shown
