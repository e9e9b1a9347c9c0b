"""Secrets are taken out of what tools say, before it is shown or kept: known values, such as keys, and known forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from retinue.base.forms import LONGEST_BLOCK, MASK, UNFINISHED_BLOCK, Form, mask_forms
from retinue.base.json import JSON
from retinue.base.scope import Undo
from retinue.model.content import InputBlock, Text
from retinue.tools.tool import ToolResult

__all__ = ["MASK", "SHORTEST_SECRET", "ByteMask", "Secrets", "redact_result"]

SHORTEST_SECRET = 8
"""Characters. Shorter values are placeholders such as `none`, and common words."""

_LONGEST_LINE = 16_384
_LOOKED_BACK = 8_192
_IN_TOKENS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+/=:@")

T = TypeVar("T")


class Secrets:
    """What no tool result may show and no file may keep. It may grow while it is in use."""

    __slots__ = ("_forms", "_values")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: tuple[str, ...] = _usable(values)
        self._forms: tuple[Form, ...] = ()

    def add(self, values: Iterable[str]) -> Undo:
        """These values are secrets too, from now on. Short ones are passed over."""
        return self._put(values=_usable(values))

    def add_forms(self, forms: Iterable[Form]) -> Undo:
        """What has one of these forms is a secret too, from now on."""
        return self._put(forms=tuple(forms))

    def _put(self, *, values: tuple[str, ...] = (), forms: tuple[Form, ...] = ()) -> Undo:
        self._values = tuple(sorted((*self._values, *values), key=len, reverse=True))
        self._forms = (*self._forms, *forms)

        def undo() -> None:
            self._values = _without(self._values, values)
            self._forms = _without(self._forms, forms)

        return Undo(undo)

    @property
    def values(self) -> tuple[str, ...]:
        """The known values, longest first."""
        return self._values

    @property
    def has_forms(self) -> bool:
        """Forms are looked for."""
        return bool(self._forms)

    def mask(self, text: str) -> str:
        """`text` without secrets; the very text if it has none."""
        for value in self._values:
            text = text.replace(value, MASK)
        return mask_forms(text, self._forms)

    def mask_forms(self, text: str) -> str:
        """`text` without what has one of the forms."""
        return mask_forms(text, self._forms)

    def mask_json(self, value: JSON) -> JSON:
        """`value` without secrets, keys of objects included."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, list):
            return [self.mask_json(item) for item in value]
        if isinstance(value, dict):
            return {self.mask(key): self.mask_json(item) for key, item in value.items()}
        return value


def _usable(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if len(value) >= SHORTEST_SECRET}, key=len, reverse=True))


def _without(have: tuple[T, ...], gone: tuple[T, ...]) -> tuple[T, ...]:
    left = list(have)
    for item in gone:
        left.remove(item)
    return tuple(left)


def redact_result(result: ToolResult, secrets: Secrets) -> ToolResult:
    """`result` without secrets: in what it shows, in its typed value, and in its facts for front ends."""
    shown = replace(
        result,
        content=tuple(_masked_block(block, secrets.mask) for block in result.content),
        value=secrets.mask_json(result.value),
        meta={secrets.mask(key): secrets.mask_json(value) for key, value in result.meta.items()},
        context=tuple(secrets.mask(text) for text in result.context),
    )
    return result if shown == result else shown


def _masked_block(block: InputBlock, mask: Callable[[str], str]) -> InputBlock:
    return Text(mask(block.text)) if isinstance(block, Text) else block


class ByteMask:
    """Takes secrets out of bytes that come piece by piece. What may be a part of one waits for the next piece: the
    beginning of a known value, and, where forms are looked for, a line that has not ended and a private key.

    In a line of more than 16 kB without an end, a form that is longer than 1 kB may be missed.
    """

    __slots__ = ("_held", "_secrets")

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = secrets or Secrets()
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on of the bytes so far."""
        data = self._without_values(self._held + data)
        end = len(data) - max((_beginning(data, value.encode()) for value in self._secrets.values), default=0)
        if self._secrets.has_forms:
            end = _settled(data[:end])
        self._held = data[end:]
        return self._without_forms(data[:end])

    def end(self) -> bytes:
        """What is still held back; nothing more will come."""
        held, self._held = self._without_forms(self._without_values(self._held)), b""
        return held

    def _without_values(self, data: bytes) -> bytes:
        for value in self._secrets.values:
            data = data.replace(value.encode(), MASK.encode())
        return data

    def _without_forms(self, data: bytes) -> bytes:
        # Every byte is one character, so that bytes that are no text stay as they are.
        return self._secrets.mask_forms(data.decode("latin-1")).encode("latin-1") if self._secrets.has_forms else data


def _settled(data: bytes) -> int:
    """How many bytes at the beginning no form can reach beyond."""
    end = data.rfind(b"\n") + 1
    if len(data) - end > _LONGEST_LINE:
        last = len(data) - 1_024
        places = range(last, last - _LOOKED_BACK, -1)
        end = next((place + 1 for place in places if data[place] not in _IN_TOKENS), len(data))
    while b"PRIVATE KEY" in data:
        block = UNFINISHED_BLOCK.search(data[:end].decode("latin-1"))
        if block is None or len(data) - block.start() > LONGEST_BLOCK:
            break
        end = data.rfind(b"\n", 0, block.start()) + 1  # which may be within a block that ends on the same line
    return end


def _beginning(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `secret`."""
    longest = min(len(data), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
