"""Who sees which tool: scoped registration, restriction of what is inherited, and the list that a request carries.

It knows names and specs only. Whether a visible tool may be called is policy and lives in the pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from retinue.base.scope import Layer, Undo
from retinue.errors import AgentClosing, BadInput, ConfigError, NotFound
from retinue.model.client import ToolSpec
from retinue.tools.tool import Tool

__all__ = ["UNLISTED", "ToolRegistry", "check_order"]

UNLISTED = "<unlisted-tools>"
"""Where a configured order puts the tools that it does not name. Source: behaviour SP-10."""

_NOTHING: Mapping[str, Tool] = MappingProxyType({})
_MAX_SHAPES = 256


class _Family:
    """What all registries of one host share: equal lists as one object, and names without a tool that are known."""

    __slots__ = ("declared", "orderable", "_lists")

    def __init__(self) -> None:
        self.declared: set[str] = set()
        """What a filter may name."""
        self.orderable: set[str] = set()
        """What an order may name besides: tools that some scope has, had or will have."""
        self._lists: dict[tuple[str, ...], list[tuple[ToolSpec, ...]]] = {}

    def shared(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """The first list equal to `specs`; a bounded number is kept, so forgetting costs identity, never content."""
        names = tuple(spec.name for spec in specs)
        known = self._lists.pop(names, [])
        self._lists[names] = known  # most recently used last
        for candidate in known:
            if candidate == specs:
                return candidate
        known.append(specs)
        del known[:-8]
        while len(self._lists) > _MAX_SHAPES:
            del self._lists[next(iter(self._lists))]
        return specs


class ToolRegistry:
    """The tools of one scope. Nearest scope wins for a name; a closed scope has none and takes none."""

    __slots__ = ("_closed", "_family", "_layer", "_listed", "_parent")

    def __init__(self, parent: ToolRegistry | None = None) -> None:
        self._parent = parent
        self._family: _Family = _Family() if parent is None else parent._family
        self._layer: Layer[Tool] = Layer("tool") if parent is None else parent._layer.child()
        self._listed: tuple[Mapping[str, Tool], tuple[str, ...] | None, tuple[ToolSpec, ...]] | None = None
        self._closed = False

    def add(self, tool: Tool) -> Undo:
        """`tool` resolves by its name here and below until the result is called.

        Raises: DuplicateName if this very scope has the name; AgentClosing if the scope is closed.
        """
        if tool.name == UNLISTED:
            raise BadInput(f"{UNLISTED!r} marks a place in an order; no tool can be called so")
        self.expect(tool.name)
        return self._layer.add(tool.name, tool)

    def offer(self, tool: Tool) -> Undo:
        """Like `add`, but the tool counts as inherited: a restriction of this very scope hides it as well.

        For plugins whose tools depend on the agent's folder: its tool filter judges them like all others.
        """
        self.expect(tool.name)
        return self._layer.add(tool.name, tool, offered=True)

    def child(self) -> ToolRegistry:
        """A registry for one agent's scope, on top of this one."""
        return ToolRegistry(self)

    def restrict(self, *, allow: Collection[str] | None = None, deny: Collection[str] | None = None) -> Undo:
        """Of inherited and offered tools, those in `allow` (if given) and not in `deny` stay visible here and below.

        Several restrictions intersect; this scope's own tools are never hidden; an empty `allow` hides all others.
        Raises: BadInput if neither is given, or on a registry without parent; NotFound for a name that no tool has.
        """
        if self._closed:
            raise AgentClosing("cannot restrict tools: the scope is being closed")
        if self._parent is None:
            raise BadInput("tools can be restricted in the scope of an agent only, not for all agents at once")
        if allow is None and deny is None:
            raise BadInput("a tool filter needs `allow` or `deny`")
        known = self._known()
        unknown = sorted({*(allow or ()), *(deny or ())} - known)
        if unknown:
            raise NotFound(f"a tool filter names {_quoted(unknown)}; there are {_quoted(sorted(known)) or 'no tools'}")
        allowed = None if allow is None else frozenset(allow)
        denied = frozenset(deny or ())
        return self._layer.hide(lambda name: name not in denied and (allowed is None or name in allowed))

    def declare(self, *names: str) -> None:
        """A filter and a configured order may hold `names` although this scope has no such tools: others have them."""
        self._family.declared.update(names)

    def expect(self, *names: str) -> None:
        """A configured order may hold `names` from the start; some scope will register them itself."""
        self._family.orderable.update(names)

    def get(self, name: str) -> Tool | None:
        """The tool that `name` resolves to here, or None if it is hidden or missing."""
        return self.view.get(name)

    @property
    def view(self) -> Mapping[str, Tool]:
        """All tools visible here, by name; read-only, and the same object until something changes."""
        return _NOTHING if self._closed else self._layer.view

    def specs(self, order: Sequence[str] | None = None) -> tuple[ToolSpec, ...]:
        """What the model is offered here: sorted by name, or by `order`, which says where the unlisted ones go.

        The same object as long as nothing changed, and the same for every scope that sees the same.
        Raises: ConfigError if `order` does not hold `<unlisted-tools>` exactly once, or an unknown or repeated name.
        """
        wanted = None if order is None else tuple(order)
        view = self.view
        if self._listed is not None and self._listed[0] is view and self._listed[1] == wanted:
            return self._listed[2]
        if self._parent is not None and self._parent.view is view:
            specs = self._parent.specs(wanted)
        else:
            names = sorted(view) if wanted is None else self._arranged(view, wanted)
            specs = self._family.shared(tuple(view[name].spec for name in names))
        self._listed = (view, wanted, specs)
        return specs

    def _arranged(self, view: Mapping[str, Tool], order: tuple[str, ...]) -> list[str]:
        check_order(order)
        known = self._known() | self._family.orderable
        unknown = [name for name in order if name not in known and name != UNLISTED]
        if unknown:
            raise ConfigError(
                f"a tool order names {_quoted(unknown)}; there are {_quoted(sorted(known)) or 'no tools'}"
            )
        rest = sorted(set(view).difference(order))
        named = {name: [name] if name in view else [] for name in order}
        return [name for place in order for name in (rest if place == UNLISTED else named[place])]

    def _known(self) -> set[str]:
        known = set(self._family.declared)
        scope: ToolRegistry | None = self
        while scope is not None:
            known.update(scope.view)
            scope = scope._parent
        return known

    def close(self) -> None:
        """The scope ended: it sees no tool, also no inherited one, and takes none."""
        self._closed = True
        self._layer.close()


def check_order(order: Sequence[str]) -> None:
    """Return if the order has one place for the tools that it does not name. Raises: ConfigError."""
    if order.count(UNLISTED) != 1:
        raise ConfigError(f"a tool order must hold {UNLISTED!r} exactly once, not {order.count(UNLISTED)} times")
    twice = sorted({name for name in order if order.count(name) > 1})
    if twice:
        raise ConfigError(f"a tool order names {_quoted(twice)} twice")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
