"""Server-sent events from bytes, wherever the network cut them. Only `data` matters to models; the rest is dropped.

It works on bytes and never decodes: an event is complete before anybody looks inside it, so a character that the
network split in two needs no care. Source: WHATWG HTML, section 9.2.6 (interpreting an event stream).
"""

from __future__ import annotations

__all__ = ["EventSplitter"]

_BOM = b"\xef\xbb\xbf"


class EventSplitter:
    """Turns the chunks of one response into the data of its events."""

    __slots__ = ("_after_cr", "_pending", "_started")

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that `chunk` completes, in order; events without data do not appear."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 10:
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        # A long event that arrives in many pieces is joined once, when one of them holds the end of a line.
        pending = self._pending
        if b"\n" not in chunk:
            if chunk:
                pending.append(chunk)
            return []
        if pending:
            pending.append(chunk)
            chunk = b"".join(pending)
            pending.clear()
        if not self._started:
            self._started = True
            chunk = chunk.removeprefix(_BOM)
        blocks = chunk.split(b"\n\n")
        rest = blocks.pop()
        if rest:
            pending.append(rest)
        return _data_of(blocks)

    def close(self) -> list[bytes]:
        """The data of a last event whose closing blank line never came; none if the stream ended in order."""
        rest = b"".join(self._pending)
        self._pending.clear()
        if not self._started:
            rest = rest.removeprefix(_BOM)
        return _data_of(rest.split(b"\n\n"))


def _data_of(blocks: list[bytes]) -> list[bytes]:
    events: list[bytes] = []
    for block in blocks:
        if block.startswith(b"data: ") and b"\n" not in block:
            events.append(block[6:])
        elif block:
            lines = [_value(line) for line in block.split(b"\n") if line.startswith(b"data:") or line == b"data"]
            if lines:
                events.append(b"\n".join(lines))
    return events


def _value(line: bytes) -> bytes:
    return line[5:].removeprefix(b" ")
