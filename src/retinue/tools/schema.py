"""From a function's signature to a parameter struct, its JSON Schema and the type that results are checked against."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from retinue.base.json import JSON, JSONObject
from retinue.errors import BadInput
from retinue.tools.tool import ToolContext, ToolResult

__all__ = ["Signature", "read_signature"]


class Signature(Struct, frozen=True, kw_only=True):
    """What a tool function takes and gives."""

    arguments: type[msgspec.Struct]
    """A struct with one field per parameter."""
    parameters: JSONObject
    """The JSON Schema of that struct; every `$ref` is inlined except those of recursive types."""
    takes_context: bool
    """The first parameter is the ToolContext."""
    returns: Any
    """The declared return type without ToolResult."""


def read_signature(name: str, function: Callable[..., object]) -> Signature:
    """The signature of `function` for the tool `name`.

    Raises: BadInput for a parameter without annotation, a variadic or positional-only one, a type that has no JSON
    form, and a missing return annotation (behaviour TR-01).
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadInput(f"tool {name!r}: {error}; annotations must name types of the function's module") from error
    if "return" not in hints:
        raise BadInput(f"tool {name!r}: its function needs a return annotation, so that results can be checked")
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    fields = [_field(name, p, hints) for p in parameters[takes_context:]]
    try:
        arguments = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True)
        schema = _inline(cast(JSONObject, msgspec.json.schema(arguments)))
        returns = _without_tool_result(hints["return"])
        if returns not in (ToolResult, str):
            msgspec.json.schema(returns)
    except (TypeError, ValueError) as error:
        raise BadInput(f"tool {name!r}: {error}") from error
    schema.pop("title", None)
    return Signature(arguments=arguments, parameters=schema, takes_context=takes_context, returns=returns)


def _field(tool: str, parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise BadInput(f"tool {tool!r}: parameter {parameter.name!r} must be passed by name, one name per value")
    if parameter.name not in hints:
        raise BadInput(f"tool {tool!r}: parameter {parameter.name!r} needs a type annotation")
    annotation = _described(hints[parameter.name])
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, annotation
    default: Any = parameter.default
    if isinstance(default, list | dict | set) and default:
        default = msgspec.field(default_factory=partial(copy.deepcopy, cast(object, default)))
    return parameter.name, annotation, cast(object, default)


def _described(annotation: Any) -> Any:
    """`Annotated[T, "words"]` becomes what msgspec reads as a description."""
    if get_origin(annotation) is not Annotated:
        return annotation
    inner, *extras = get_args(annotation)
    metas = [msgspec.Meta(description=e) if isinstance(e, str) else e for e in extras]
    for meta in metas:
        inner = Annotated[inner, meta]
    return inner


def _without_tool_result(annotation: Any) -> Any:
    """`T | ToolResult` checks as T: a ToolResult is passed through whatever else is declared."""
    if isinstance(annotation, type) or not hasattr(annotation, "__args__"):
        return annotation
    parts = get_args(annotation)
    if ToolResult not in parts or get_origin(annotation) is Annotated:
        return annotation
    return Union[tuple(part for part in parts if part is not ToolResult)]  # noqa: UP007  (built at run time)


def _inline(schema: JSONObject) -> JSONObject:
    """The schema with its definitions put where they are used. Recursive ones stay under `$defs`."""
    definitions = schema.pop("$defs", {})
    assert isinstance(definitions, dict)
    kept: JSONObject = {}

    def resolve(node: JSON, inside: tuple[str, ...]) -> JSON:
        if isinstance(node, list):
            return [resolve(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return {key: resolve(value, inside) for key, value in node.items()}
        name = reference.removeprefix("#/$defs/")
        if name in inside or name in kept:
            if name not in kept:
                kept[name] = None  # taken, so that the definition refers to itself
                kept[name] = resolve(definitions[name], ())
            return dict(node)
        siblings = {key: resolve(value, inside) for key, value in node.items() if key != "$ref"}
        target = resolve(definitions[name], (*inside, name))
        assert isinstance(target, dict)
        return {**target, **siblings}

    top = resolve(schema, ())
    assert isinstance(top, dict)
    return {**top, "$defs": kept} if kept else top
