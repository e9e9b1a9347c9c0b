"""Sections of the system prompt, and who sees which."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, field

from retinue.base.scope import Layer, Undo
from retinue.errors import BadInput

__all__ = ["AssemblyContext", "PromptRegistry", "Section", "SectionText"]

_STOCK = ("provider", "model", "cwd", "braces")


class AssemblyContext(Struct, frozen=True, kw_only=True):
    """What a prompt may depend on: the agent's model, its folder, the tools it sees, and further variables by name."""

    provider: str
    model: str
    cwd: Path
    tools: Set[str] = frozenset()
    """Names of the tools that are visible in the scope being assembled."""
    variables: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    """Further `{{name}}` variables; None = known, but without a value here, so using it is an error."""

    def __post_init__(self) -> None:
        for name in _STOCK:
            if name in self.variables:
                raise BadInput(f"the prompt variable {name!r} is built in and cannot be given another value")

    def value(self, name: str) -> str | None:
        """The value of a variable, or None if it has none. Raises: KeyError if it is unknown."""
        match name:
            case "provider":
                return self.provider
            case "model":
                return self.model
            case "cwd":
                return str(self.cwd)
            case "braces":
                return "{{"  # how text that holds braces of its own writes them
            case _:
                return self.variables[name]

    @property
    def names(self) -> list[str]:
        """All known variables, sorted."""
        return sorted((*_STOCK, *self.variables))


SectionText: TypeAlias = str | Callable[[AssemblyContext], str]


class Section(Struct, frozen=True, kw_only=True):
    """One named part of a prompt. Raises: BadInput if the order is not finite or the name is empty."""

    name: str
    """Unique in its scope: `tool:<tool name>` for a tool's guidance, `deployment:persona` for the persona."""
    order: float
    """Sections render in ascending order; ties keep registration order."""
    text: SectionText
    """Text with `{{name}}` variables, or a function whose result is used as it is, so that it may hold anything."""
    tool: str | None = None
    """Rendered only while this tool is visible in the scope."""
    complete: bool = False
    """It is the whole prompt: while it renders, no other section does."""

    def __post_init__(self) -> None:
        if not self.name:
            raise BadInput("a prompt section needs a name")
        if not math.isfinite(self.order):
            raise BadInput(f"prompt section {self.name!r}: its order must be a finite number, not {self.order}")


class PromptRegistry:
    """The sections of one scope. A section replaces an inherited one of the same name, in its place among ties."""

    __slots__ = ("_closed", "_layer", "_ordered", "_silent")

    def __init__(self, layer: Layer[Section] | None = None) -> None:
        self._layer: Layer[Section] = Layer("prompt section") if layer is None else layer
        self._ordered: tuple[Mapping[str, Section], tuple[Section, ...]] | None = None
        self._closed = False
        self._silent = False

    def add(self, section: Section) -> Undo:
        """`section` is part of every later assembly here and below until the result is called.

        Raises: DuplicateName if this very scope has the name; AgentClosing if the scope is closed.
        """
        return self._layer.add(section.name, section)

    def silence(self) -> None:
        """Nothing renders in this scope any more, whatever is registered here or above."""
        self._silent = True

    def child(self) -> PromptRegistry:
        """A registry for one agent's scope, on top of this one."""
        return PromptRegistry(self._layer.child())

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections that are effective here, in the order in which they render."""
        if self._closed or self._silent:
            return ()
        view = self._layer.view
        if self._ordered is None or self._ordered[0] is not view:
            self._ordered = (view, tuple(sorted(view.values(), key=lambda section: section.order)))
        return self._ordered[1]

    def close(self) -> None:
        """The scope ended: it has no section and takes none."""
        self._closed = True
        self._layer.close()
