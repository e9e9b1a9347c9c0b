"""What a command says, as text for whoever watches, while it says it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from retinue.tools.output import without_controls

__all__ = ["ESCAPE", "LiveText"]

ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""A sequence for a terminal. Nobody sits at one, and some of them do more than paint."""
_UNSAFE = re.compile(r"[\x1b\x7f-\x9f]")
"""What is no whole sequence, and what begins one in a single character."""
_LONGEST_ESCAPE = 256
"""Characters. What is longer and has no end is none."""


class LiveText:
    """Bytes as they come, handed on as text: no escape sequence, and no character or sequence that is not whole yet."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        """Begins with an escape that may go on."""

    def add(self, data: bytes, *, is_last: bool = False) -> None:
        """What is whole by now was told."""
        text = ESCAPE.sub("", self._rest + self._decoder.decode(data, is_last))
        at = text.find("\x1b", max(0, len(text) - _LONGEST_ESCAPE))  # it may end in an escape of its own
        is_open = at >= 0 and not is_last
        self._rest = text[at:] if is_open else ""
        text = _UNSAFE.sub("\ufffd", without_controls(text[:at] if is_open else text))
        if text:
            self._tell(text)
