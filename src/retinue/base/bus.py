"""Notifications by type. An agent's bus forwards to its host's, so a scoped listener sees only its own scope.

Listeners are synchronous and contained: one that fails is reported to the log and starves nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from retinue.base.scope import Undo

__all__ = ["Bus"]

E = TypeVar("E")
_log = logging.getLogger("retinue")


class Bus:
    """Publishes event objects to the listeners of their exact type, here and then in the parent."""

    __slots__ = ("_listeners", "_parent")

    def __init__(self, parent: Bus | None = None) -> None:
        self._parent = parent
        self._listeners: dict[type[Any], tuple[Callable[[Any], None], ...]] = {}

    def on(self, kind: type[E], listener: Callable[[E], None]) -> Undo:
        """`listener` is called with every later event of exactly this type."""
        self._listeners[kind] = (*self._listeners.get(kind, ()), listener)

        def undo() -> None:
            self._listeners[kind] = tuple(x for x in self._listeners.get(kind, ()) if x is not listener)

        return Undo(undo)

    def publish(self, event: object) -> None:
        """Every listener was called; failures are logged."""
        bus: Bus | None = self
        while bus is not None:
            for listener in bus._listeners.get(type(event), ()):
                try:
                    listener(event)
                except Exception:
                    _log.exception("a listener of %s failed", type(event).__name__)
            bus = bus._parent

    def publish_or_veto(self, event: object) -> None:
        """Like `publish`, but the first listener that raises stops it: its exception reaches the caller."""
        bus: Bus | None = self
        while bus is not None:
            for listener in bus._listeners.get(type(event), ()):
                listener(event)
            bus = bus._parent

    def wants(self, kind: type[object]) -> bool:
        """True if publishing such an event would reach anybody; lets hot paths skip building it."""
        bus: Bus | None = self
        while bus is not None:
            if bus._listeners.get(kind):
                return True
            bus = bus._parent
        return False
