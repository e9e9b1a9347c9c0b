"""Text that every encoder takes: JSON can spell halves of a character, which UTF-8 cannot hold."""

from __future__ import annotations

import re

__all__ = ["well_formed"]

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """`text` with pairs of surrogates joined into their character and lone ones replaced by U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
