"""Around-chains: layers that wrap one operation, outermost first. A scoped chain runs inside its parent's layers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from retinue.base.scope import Undo

__all__ = ["Around", "Chain", "Next"]

Req = TypeVar("Req")
Res = TypeVar("Res")

Next: TypeAlias = Callable[[Req], Awaitable[Res]]
Around: TypeAlias = Callable[[Req, Next[Req, Res]], Awaitable[Res]]


class Chain(Generic[Req, Res]):
    """Layers around one operation. With no layer, running it is a plain call."""

    __slots__ = ("_layers", "_parent")

    def __init__(self, parent: Chain[Req, Res] | None = None) -> None:
        self._parent = parent
        self._layers: tuple[Around[Req, Res], ...] = ()

    def wrap(self, layer: Around[Req, Res]) -> Undo:
        """`layer` runs around every later operation, inside the layers that are there already."""
        self._layers = (*self._layers, layer)

        def undo() -> None:
            self._layers = tuple(x for x in self._layers if x is not layer)

        return Undo(undo)

    def child(self) -> Chain[Req, Res]:
        """A chain for one scope: its layers run inside this chain's."""
        return Chain(self)

    async def run(self, request: Req, inner: Next[Req, Res]) -> Res:
        """The result of `inner` as seen through all layers. What a layer raises reaches the caller."""
        return await self.around(inner)(request)

    def around(self, inner: Next[Req, Res]) -> Next[Req, Res]:
        """`inner` wrapped by the layers registered now."""
        call = inner
        for layer in reversed(self._layers):
            call = _bind(layer, call)
        return call if self._parent is None else self._parent.around(call)


def _bind(layer: Around[Req, Res], inner: Next[Req, Res]) -> Next[Req, Res]:
    async def call(request: Req) -> Res:
        return await layer(request, inner)

    return call
