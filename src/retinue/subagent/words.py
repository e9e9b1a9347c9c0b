"""How much of a child's words enters its parent's context: long ones keep head and tail, and a file has all of them.

The text is the same for the same words and path, whether or not the file could be written, since a message that is
written again after a crash must say the same.
"""

from __future__ import annotations

import logging
from pathlib import Path

from anyio import to_thread

from retinue.base.ids import SessionId
from retinue.model.content import InputBlock, Text
from retinue.tools.output import clean_text, excerpt, spill_path, write_private
from retinue.tools.tool import CallKey

__all__ = ["WORDS_LIMIT", "bounded_blocks", "bounded_words", "closing_path"]

WORDS_LIMIT = 16_000
"""Bytes of UTF-8 text in one message: ten children that end at once fill 160 kB of their parent's context, not more."""

_log = logging.getLogger("retinue")


def closing_path(home: Path | None, child: SessionId, epoch: int) -> Path | None:
    """Where the whole closing message of an activation belongs, below what agents may read; None without a home."""
    if home is None:
        return None
    return spill_path(home / "spill", CallKey(session_id=child, seq=0, index=0)).with_name(f"closing-{epoch}.txt")


async def bounded_words(text: str, path: Path | None) -> str:
    """`text` within the limit; a longer one stands whole in the file `path`, if there is one, which the excerpt names.

    A file that cannot be written is logged.
    """
    if len(text) <= WORDS_LIMIT // 4:
        return text
    text = clean_text(text)
    data = text.encode()
    if len(data) <= WORDS_LIMIT:
        return text
    if path is not None:
        try:
            await to_thread.run_sync(write_private, path, data)
        except OSError as error:
            _log.warning("the full words of a child could not be kept in %s: %s", path, error)
    return excerpt(text, WORDS_LIMIT, path)


async def bounded_blocks(blocks: tuple[InputBlock, ...], path: Path | None) -> tuple[InputBlock, ...]:
    """The same of a message: its text, joined, within the limit. Other blocks stay."""
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if not texts:
        return blocks
    return (Text(await bounded_words("\n".join(texts), path)), *(b for b in blocks if not isinstance(b, Text)))
