"""Arguments of a call: from the raw text a model wrote to a JSON object, and what is wrong in words it can act on.

It owns the parse, the schema check and the wording of `INVALID_ARGS`. It refuses to guess: nothing is coerced, and keys
that no parameter declares are left alone (behaviour TR-13).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from retinue.base.json import JSON, JSONObject, decode
from retinue.errors import BadInput, ToolFailure

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["Checker", "is_object", "parse_arguments"]

_SHOWN = 20
"""Violations in one message; more would bury the first ones."""
_VALUE_CHARS = 80
"""Characters of a wrong value that are repeated to the model."""


def is_object(value: JSON) -> TypeGuard[JSONObject]:
    """True for a JSON object."""
    return isinstance(value, dict)


def parse_arguments(raw: str) -> JSONObject:
    """The object that the model's text denotes; empty text is an empty object (behaviour TD-07).

    Raises: ToolFailure `INVALID_ARGS` with the position of the fault, or with the kind of value if it is no object.
    """
    if not raw.strip():
        return {}
    try:
        value = decode(raw)
    except RecursionError:
        raise ToolFailure("INVALID_ARGS", "the arguments are nested too deeply") from None
    except ValueError as error:
        raise ToolFailure("INVALID_ARGS", f"the arguments are not valid JSON: {_fault(raw, error)}") from None
    if not is_object(value):
        raise ToolFailure("INVALID_ARGS", f"the arguments must be a JSON object, not {_kind(value)}")
    return value


def _fault(raw: str, error: ValueError) -> str:
    """Where and why the text stops being JSON. The standard parser is asked again since it knows the position."""
    try:
        json.loads(raw)
    except json.JSONDecodeError as precise:
        if not raw[precise.pos :].strip() or precise.msg.startswith("Unterminated"):
            return f"the text ends too early, after {len(raw)} characters: it looks cut off"
        near = raw[max(0, precise.pos - 20) : precise.pos + 20]
        return f"{precise.msg} at character {precise.pos} (line {precise.lineno}), near {near!r}"
    except (RecursionError, ValueError):
        pass
    return str(error)


class Checker:
    """Finds everything that is wrong with the arguments of one tool. The validator is built at first need and kept."""

    __slots__ = ("_schema", "_tool", "_validator")

    def __init__(self, tool: str, schema: JSONObject) -> None:
        self._tool = tool
        self._schema = schema
        self._validator: jsonschema_rs.Validator | None = None

    def compile(self) -> jsonschema_rs.Validator:
        """The validator. Raises: BadInput if the schema is not one, or refers to another document."""
        if self._validator is None:
            import jsonschema_rs

            try:
                self._validator = jsonschema_rs.validator_for(self._schema, offline=True)
            except (ValueError, jsonschema_rs.ReferencingError) as error:
                raise BadInput(f"tool {self._tool!r}: its parameters are no usable JSON Schema: {error}") from error
        return self._validator

    def check(self, arguments: JSONObject) -> None:
        """The arguments satisfy the schema. Raises: ToolFailure `INVALID_ARGS` that lists every violation."""
        if not self.compile().is_valid(arguments):
            raise self.failure(arguments)

    def failure(self, arguments: JSONObject, otherwise: str = "") -> ToolFailure:
        """The error for arguments that were found wrong; `otherwise` is said if the schema sees nothing wrong."""
        found: dict[str, None] = {}
        for error in self.compile().iter_errors(arguments):
            found.update(dict.fromkeys(_lines(error)))
        lines = list(found) or [otherwise or "they do not fit the parameters"]
        shown = [f"- {line}" for line in lines[:_SHOWN]]
        if len(lines) > _SHOWN:
            shown.append(f"- and {len(lines) - _SHOWN} more")
        return ToolFailure(
            "INVALID_ARGS",
            "\n".join([f"the arguments of {self._tool!r} are invalid:", *shown, self._expected(arguments)]),
        )

    def _expected(self, arguments: JSONObject) -> str:
        properties = self._schema.get("properties")
        declared = properties if is_object(properties) else {}
        required = self._schema.get("required")
        needed = required if isinstance(required, list) else []
        parts = [f"{name} ({_type(spec)}{', required' if name in needed else ''})" for name, spec in declared.items()]
        text = f"Parameters: {', '.join(parts)}." if parts else "It takes no parameters."
        unknown = [name for name in arguments if name not in declared]
        if unknown and declared and any(name not in arguments for name in needed):
            text += f" Not a parameter: {', '.join(repr(name) for name in unknown[:_SHOWN])}."
        return text


def _lines(error: jsonschema_rs.ValidationError, depth: int = 0) -> Iterator[str]:
    where = _path(error.instance_path)
    kind: Any = error.kind
    match kind.name:
        case "required":
            missing = _path([*error.instance_path, kind.property])
            yield f"{missing}: required, but missing"
        case "type":
            yield f"{where}: expected {' or '.join(kind.types)}, got {_got(error.instance)}"
        case "enum":
            yield f"{where}: expected one of {_list(kind.options)}, got {_got(error.instance)}"
        case "const":
            yield f"{where}: expected {_short(kind.expected_value)}, got {_got(error.instance)}"
        case "anyOf" | "oneOf" if depth < 3 and hasattr(kind, "context"):
            branches = [[line for inner in branch for line in _lines(inner, depth + 1)] for branch in kind.context]
            yield from _alternatives(where, [branch for branch in branches if branch], error)
        case "additionalProperties" | "unevaluatedProperties":
            yield f"{where}: not expected here: {', '.join(repr(name) for name in kind.unexpected)}"
        case "pattern":
            yield f"{where}: must match the pattern {kind.pattern}, got {_got(error.instance)}"
        case "format":
            yield f"{where}: expected the format {kind.format}, got {_got(error.instance)}"
        case _:
            yield f"{where}: {_cut(error.message, 300)}"


def _alternatives(where: str, branches: list[list[str]], error: jsonschema_rs.ValidationError) -> Iterator[str]:
    """One line if every alternative refuses the value itself, else what the alternatives that look inside it say."""
    prefix = f"{where}: expected "
    flat = [branch[0] for branch in branches if len(branch) == 1 and branch[0].startswith(prefix)]
    inside = [branch for branch in branches if branch and not branch[0].startswith(prefix)]
    if inside:
        yield from inside[0]
    elif flat and len(flat) == len(branches):
        kinds = [line.removeprefix(prefix).rsplit(", got ", 1)[0] for line in flat]
        yield f"{prefix}{' or '.join(kinds)}, got {_got(error.instance)}"
    else:
        yield f"{where}: {_cut(error.message, 300)}"


def _path(steps: list[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "the arguments"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _got(value: object) -> str:
    return "null" if value is None else f"{_kind(value)} ({_short(value)})"


def _short(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=str), _VALUE_CHARS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _list(options: list[object]) -> str:
    return ", ".join(_short(option) for option in options[:_SHOWN])


def _type(spec: JSON) -> str:
    """One word or two for a parameter's type."""
    if not is_object(spec):
        return "any"
    kind = spec.get("type")
    if isinstance(kind, str):
        return kind
    if isinstance(kind, list):
        return " or ".join(str(k) for k in kind)
    options = spec.get("enum")
    if isinstance(options, list):
        return "one of " + _list(list(options))
    branches = spec.get("anyOf", spec.get("oneOf"))
    if isinstance(branches, list):
        return " or ".join(dict.fromkeys(_type(branch) for branch in branches))
    return "object" if "$ref" in spec else "any"
