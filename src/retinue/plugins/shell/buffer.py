"""Output of a running command: bounded in memory, whole in a file if there is much of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from retinue.plugins.shell.live import ESCAPE, LiveText
from retinue.tools.output import Gap, cut_head, cut_tail, decode_output, join_excerpt
from retinue.tools.secrets import ByteMask, Secrets

__all__ = ["OutputBuffer"]

_HEAD_BYTES = 12_000
_TAIL_BYTES = 18_000
"""More than the head: what went wrong stands at the end. Both are below the limit of a result."""
_FILE_BYTES = 64 * 1024 * 1024
_SLACK = 4
"""Bytes kept beyond a cut, so that it can be moved between two characters."""
_log = logging.getLogger("retinue")


class OutputBuffer:
    """Takes bytes as they come. Once they no longer fit, all of them go to `path` as well, up to 64 MiB.

    `add` never blocks. If a file is due for the bytes, `store` them first, which does and may run in a worker thread.
    """

    def __init__(
        self, path: Path | None = None, secrets: Secrets | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        """`tell` takes what is added as text, at once."""
        self._path = path
        self._live = None if tell is None else LiveText(tell)
        self.mask = ByteMask(secrets)
        """What comes from the command goes through it before it is stored or added."""
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._file: FileIO | None = None
        self._kept = 0
        self.is_closed = False
        """Nothing more will come."""

    @property
    def total_bytes(self) -> int:
        """How much came in so far."""
        return self._total

    def is_file_due(self, size: int) -> bool:
        """True if `size` more bytes must be stored before they are added."""
        return self._path is not None and self._kept < _FILE_BYTES and self._total + size > _HEAD_BYTES + _TAIL_BYTES

    def store(self, data: bytes) -> None:
        """The file holds `data` after all that was added before. Blocks; a failure is logged and ends the file."""
        if self._file is None and self._path is not None:
            self._open(self._path)
        self._keep(data)

    def add(self, data: bytes) -> None:
        """`data` follows what was added before."""
        if self._live is not None:
            self._live.add(data)
        self._total += len(data)
        missing = _HEAD_BYTES + _SLACK - len(self._head)
        if missing > 0:
            self._head += data[:missing]
            data = data[missing:]
        self._tail += data
        if len(self._tail) > 2 * (_TAIL_BYTES + _SLACK):
            del self._tail[: -(_TAIL_BYTES + _SLACK)]

    def text(self) -> str:
        """What a model is shown: everything, or head and tail with a note on what is between; no escape sequences."""
        if self._total <= _HEAD_BYTES + _TAIL_BYTES:
            return self.decoded(bytes(self._head + self._tail))
        head = cut_head(bytes(self._head), _HEAD_BYTES)
        tail = cut_tail(bytes(self._tail), _TAIL_BYTES)
        gap = Gap(
            total_bytes=self._total,
            omitted_bytes=self._total - len(head) - len(tail),
            path=self._path,
            kept_bytes=self._kept if self._kept < self._total else None,
        )
        return join_excerpt(self.decoded(head), gap, self.decoded(tail))

    def close(self) -> None:
        """The file is closed; the text stays. Nothing more will come."""
        self.is_closed = True
        if self._live is not None:
            self._live.add(b"", is_last=True)
        self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def decoded(self, data: bytes) -> str:
        """`data` as a model is shown it: text without escape sequences."""
        text = decode_output(data)
        if text.count("\ufffd") > len(data) // 10:
            return f"[{len(data)} bytes of binary output, not shown]\n"
        text = ESCAPE.sub("", text)
        if "\r" in text:  # a progress line that overwrote itself
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        return text

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            self._file = FileIO(fd, "wb")
        except OSError as error:
            self._lost(error)
            return
        self._keep(bytes(self._head + self._tail))

    def _keep(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._kept += self._file.write(data[: _FILE_BYTES - self._kept])
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        _log.warning("the output of a command could not be kept in %s: %s", self._path, error)
        self._path = None
        self._end_file()
