"""Events come out of a byte stream the same, wherever the network cuts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.model.adapters.sse import EventSplitter

_LINES = st.sampled_from(
    [
        "data: {}",
        'data: {"text":"ü€😀"}',
        "data:no space",
        "data:  two spaces",
        "data",
        "data:",
        ": ping",
        "event: x",
        "",
    ]
)


def _events(chunks: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    return [data for chunk in chunks for data in splitter.feed(chunk)] + splitter.close()


def _reference(text: str) -> list[bytes]:
    """The standard's algorithm, line by line, except that a last event needs no blank line."""
    events: list[bytes] = []
    data: list[str] = []
    for line in [*text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            events.append("\n".join(data).encode())
            data = []
    return events


@given(
    lines=st.lists(_LINES, max_size=12),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=4),
    mark=st.sampled_from(["", "\ufeff"]),
    data=st.data(),
)
def test_any_cut_of_a_stream_gives_the_events_of_the_standard(
    lines: list[str], ends: list[str], mark: str, data: st.DataObject
) -> None:
    text = mark + "".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    stream = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    assert _events(chunks) == _reference(text)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_cut_after_every_byte_is_whole(end: bytes) -> None:
    stream = end.join([b"data: one", b"", b": ping", b"", b"data: two", b"data: lines", b"", b"data: [DONE]", b"", b""])
    assert _events([stream[i : i + 1] for i in range(len(stream))]) == [b"one", b"two\nlines", b"[DONE]"]


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n\ndata: b\n") == [b"a"]
    assert splitter.feed(b"\n") == [b"b"]
    assert splitter.feed(b"data: c\r\n\r") == [b"c"]
    assert splitter.feed(b"\ndata: d\n\n") == [b"d"]


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert _events([b"data: a\n\n", b"data: b"]) == [b"a", b"b"]
