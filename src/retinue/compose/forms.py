"""Types of options in words: what a value must be, for messages and for the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from msgspec import Meta, Struct, StructMeta

__all__ = ["form_of"]

_PLAIN = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", dict: "mapping", list: "list"}


def _group(_struct: type[Struct]) -> str:
    return "mapping"


def form_of(hint: Any, struct: Callable[[type[Struct]], str] = _group) -> str:
    """`hint` as a reader of YAML or JSON knows it, constants in backticks. `struct` says how a struct is called."""
    if isinstance(hint, StructMeta):
        return struct(cast("type[Struct]", hint))
    if hint is NoneType:
        return "`null`"
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [bound for meta in args[1:] if isinstance(meta, Meta) for bound in _bounds(meta)]
        return " ".join([form_of(args[0], struct), *bounds])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin in (Union, UnionType):
        parts = dict.fromkeys(form_of(part, struct) for part in args)
        if any(part.startswith("any JSON") for part in parts):
            return "any JSON"
        return " or ".join(parts)
    if origin in (tuple, list):
        return f"list of {form_of(args[0], struct)}"
    if origin is dict:
        value = form_of(args[1], struct) if isinstance(args[1], StructMeta) else "mapping"
        return "mapping" if value == "mapping" else f"mapping to {value}"
    if hasattr(hint, "__supertype__"):
        return form_of(hint.__supertype__, struct)
    return _PLAIN.get(hint, "any JSON")


def _bounds(meta: Meta) -> Iterator[str]:
    for words, value in (("from", meta.ge), ("above", meta.gt), ("to", meta.le), ("below", meta.lt)):
        if value is not None:
            yield f"{words} {value}"
