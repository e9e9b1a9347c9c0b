"""Small texts that several views share: numbers, durations, one-line excerpts."""

from __future__ import annotations

import re

__all__ = ["LABEL_WIDTH", "brief", "duration", "one_line", "plain", "tokens"]

LABEL_WIDTH = 80
"""Most characters of a name that a model made up."""

_UNSEEN = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, clipboards
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\|\x9c)?"  # DCS and other strings
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, modes
    r"|\x1b[ -/]*[0-~]?"  # every other escape sequence
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # C0 but tab and newline, DEL, C1
    r"|[\u202a-\u202e\u2066-\u2069]"  # what turns the direction of writing round
)
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def tokens(count: int) -> str:
    """A number of tokens in at most a few characters."""
    if count < 1000:
        return f"{count} tok"
    return f"{count / 1000:.1f}k tok" if count < 1_000_000 else f"{count / 1_000_000:.1f}M tok"


def duration(seconds: float) -> str:
    """Such as `0.4 s`, `12 s`, `3 min 5 s`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plain(text: str) -> str:
    """`text` with its lines and nothing that a terminal would obey: no escape sequences, no control characters."""
    return _SURROGATE.sub("\ufffd", _UNSEEN.sub("", _LINE_ENDS.sub("\n", text)))


def one_line(text: str) -> str:
    """`text` as one plain line."""
    return " ".join(plain(text).split())


def brief(text: str, width: int = LABEL_WIDTH) -> str:
    """`text` as one plain line of at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else line[: width - 1] + "…"
