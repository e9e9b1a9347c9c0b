"""A bounded memory of values that are costly to make and shared by many."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The values of the 256 keys used last."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of `key`, which counts as used now, or None."""
        value = self._kept.pop(key, None)
        if value is not None:
            self._kept[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """`key` has `value`; the key that was not used for longest is forgotten if there is no room."""
        if len(self._kept) >= 256:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = value
