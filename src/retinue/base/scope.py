"""Named registrations in layers: one global layer, one per agent, nearest wins.

A registration is undone by calling what `add` returned or by leaving its `with` block. A layer that holds nothing of
its own shares its parent's view, so a thousand agents without own registrations cost no copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from retinue.errors import AgentClosing, DuplicateName

__all__ = ["Layer", "Undo"]

T = TypeVar("T")


class Undo:
    """Takes one registration back, once: call it, or use it as a context manager."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self._action: Callable[[], object] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()

    def __enter__(self) -> Undo:
        return self

    def __exit__(self, *_: object) -> None:
        self()


class Layer(Generic[T]):
    """Names of one kind in one scope, on top of an optional parent layer."""

    __slots__ = ("_closed", "_filter", "_kind", "_offered", "_own", "_parent", "_version", "_view", "_view_version")

    def __init__(self, kind: str, parent: Layer[T] | None = None) -> None:
        self._kind = kind
        self._parent = parent
        self._own: dict[str, T] = {}
        self._offered: frozenset[str] = frozenset()
        self._filter: tuple[Callable[[str], bool], ...] = ()
        self._version = 0
        self._view: Mapping[str, T] = MappingProxyType({})
        self._view_version: tuple[int, ...] | None = None
        self._closed = False

    def child(self) -> Layer[T]:
        """A new empty layer on top of this one."""
        return Layer(self._kind, self)

    def add(self, name: str, value: T, *, offered: bool = False) -> Undo:
        """`name` resolves to `value` in this layer and below until the result is called.

        What is `offered` counts as inherited: this layer's own filters hide it as well. Raises: DuplicateName if this
        very layer has the name; AgentClosing if the layer is closed.
        """
        if self._closed:
            raise AgentClosing(f"cannot register {self._kind} {name!r}: its scope is being closed")
        if name in self._own:
            raise DuplicateName(f"{self._kind} {name!r} is registered twice in one scope; remove one of the two")
        self._own[name] = value
        self._offered = self._offered | {name} if offered else self._offered - {name}
        self._version += 1

        def undo() -> None:
            if self._own.get(name) is value:
                del self._own[name]
                self._version += 1

        return Undo(undo)

    def hide(self, is_visible: Callable[[str], bool]) -> Undo:
        """Inherited and offered names for which `is_visible` is false vanish from here and below; own names stay.

        Several filters intersect.
        """
        self._filter = (*self._filter, is_visible)
        self._version += 1

        def undo() -> None:
            self._filter = tuple(f for f in self._filter if f is not is_visible)
            self._version += 1

        return Undo(undo)

    def close(self) -> None:
        """Everything of this layer is gone, and it takes nothing any more."""
        self._closed = True
        self._own.clear()
        self._filter = ()
        self._version += 1

    @property
    def version(self) -> tuple[int, ...]:
        """Changes whenever the view may have changed."""
        if self._parent is None:
            return (self._version,)
        return (*self._parent.version, self._version)

    @property
    def view(self) -> Mapping[str, T]:
        """All names that resolve here; read-only, and the same object until something changes."""
        version = self.version
        if version != self._view_version:
            self._view = self._build()
            self._view_version = version
        return self._view

    def _build(self) -> Mapping[str, T]:
        inherited: Mapping[str, T] = MappingProxyType({}) if self._parent is None else self._parent.view
        if not self._own and not self._filter:
            return inherited

        def is_kept(name: str) -> bool:
            return all(keep(name) for keep in self._filter)

        kept = {name: value for name, value in inherited.items() if is_kept(name)}
        own = {name: value for name, value in self._own.items() if name not in self._offered or is_kept(name)}
        return MappingProxyType(kept | own)

    def get(self, name: str) -> T | None:
        """What `name` resolves to here, or None."""
        return self.view.get(name)
