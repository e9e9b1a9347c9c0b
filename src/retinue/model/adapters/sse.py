"""Server-sent events from bytes, wherever the network cut them. Only `data` matters to models; the rest is dropped.

It works on bytes and never decodes: an event is complete before anybody looks inside it, so a character that the
network split in two needs no care. Source: WHATWG HTML, section 9.2.6 (interpreting an event stream).
"""

from __future__ import annotations

__all__ = ["EventSplitter"]

_BOM = b"\xef\xbb\xbf"


class EventSplitter:
    """Turns the chunks of one response into the data of its events."""

    __slots__ = ("_after_cr", "_data", "_pending", "_started")

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._data: bytes | None = None
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
        # A long line that arrives in many pieces is joined once, when its end is here.
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
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if rest:
            pending.append(rest)
        return self._events(lines)

    def close(self) -> list[bytes]:
        """The data of a last event whose closing blank line never came; none if the stream ended in order."""
        return self.feed(b"\n\n")

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data is not None:
                    events.append(data)
                    data = None
            elif line.startswith(b"data:") or line == b"data":
                # Without a value this is an empty line of data.
                value = line[6:] if line[5:6] == b" " else line[5:]
                data = value if data is None else data + b"\n" + value
        self._data = data
        return events
