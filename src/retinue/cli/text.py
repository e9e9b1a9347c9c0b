"""Small texts that several views share: numbers, durations, one-line excerpts."""

from __future__ import annotations

__all__ = ["brief", "duration", "tokens"]


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


def brief(text: str, width: int) -> str:
    """`text` as one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
