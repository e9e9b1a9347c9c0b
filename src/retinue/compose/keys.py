"""What a configuration may say: keys in snake_case and in camelCase; others, and wrong values, are refused by name."""

from __future__ import annotations

import re
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, StructMeta

from retinue.base.json import JSON, JSONObject
from retinue.compose.forms import form_of
from retinue.errors import ConfigError

__all__ = ["checked", "is_spelled", "known_keys", "read_options"]

S = TypeVar("S", bound=Struct)


def known_keys(value: JSONObject, struct: type[Struct], where: str) -> JSONObject:
    """`value` with keys as `struct` spells them, nested structs included, also as the values of a mapping.

    Free-form mappings stay as they are. Raises: ConfigError for a key that there is not, with those that there are, and
    for one given in both spellings.
    """
    if not value:
        return {}
    hints = get_type_hints(struct)
    result: JSONObject = {}
    for key, inner in value.items():
        name = key if key in hints else _snake(key)
        if name not in hints:
            raise ConfigError(f"{where}: there is no option {key!r}; there are {', '.join(sorted(hints))}")
        if name in result:
            raise ConfigError(f"{where}: {key!r} and {name!r} are the same key; keep one")
        result[name] = _inner(inner, hints.get(name), where)
    return result


def _inner(value: JSON, hint: Any, where: str) -> JSON:
    nested = _struct_of(hint)
    if nested is None:
        return value
    if isinstance(value, dict) and get_origin(hint) is dict:
        return {
            key: known_keys(item, nested, f"{where}: {key}") if isinstance(item, dict) else item
            for key, item in value.items()
        }
    if isinstance(value, dict):
        return known_keys(value, nested, where)
    if isinstance(value, list):
        return [known_keys(item, nested, where) if isinstance(item, dict) else item for item in value]
    return value


def _struct_of(hint: Any) -> type[Struct] | None:
    """The struct in a hint such as `S`, `S | None`, `tuple[S, ...]`."""
    if isinstance(hint, StructMeta):
        return cast(type[Struct], hint)
    for part in get_args(hint):
        found = _struct_of(part)
        if found is not None:
            return found
    return None


def is_spelled(value: JSON) -> bool:
    """Whatever keys `value` has, nested ones included, none of them is written in camelCase."""
    if isinstance(value, dict):
        return all(key == _snake(key) and is_spelled(inner) for key, inner in value.items())
    return all(is_spelled(inner) for inner in value) if isinstance(value, list) else True


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m.group(1).lower(), name)


def read_options(name: str, value: JSON, struct: type[Struct]) -> Struct:
    """The options of plugin `name`, validated. Raises: ConfigError with the path of the wrong key."""
    where = f"plugins.{name}"
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must hold a mapping of options, not {value!r}")
    return checked(known_keys(value, struct, where), struct, where)


def checked(value: JSONObject, struct: type[S], path: str = "", *, source: str = "") -> S:
    """`value`, which has known keys, as a `struct`. `path` is where it stands in a configuration, `source` who says it.

    Raises: ConfigError for a value that is none, with its path and what it must be.
    """
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        where, wrong, hint = _wrong(value, struct, path)
        raise ConfigError(f"{source}{': ' if source else ''}{where} {_fault(wrong, hint)}") from error


def _fault(value: JSON, hint: Any) -> str:
    struct = _struct_of(hint)
    if isinstance(value, dict) and struct is not None:
        missing = [field.name for field in msgspec.structs.fields(struct) if field.required and field.name not in value]
        return f"lacks {', '.join(missing)}"
    form = form_of(hint).replace("`", "")
    article = {"integer": "an ", "number": "a ", "mapping": "a ", "list": "a "}.get(form.split()[0], "")
    return f"must be {'one of ' if ', ' in form else article}{form}, not {value!r}"


def _wrong(value: JSON, hint: Any, path: str) -> tuple[str, JSON, Any]:
    """The innermost part of `value` that is not what `hint` asks for: its path, itself and what it must be."""
    parts: list[tuple[str, JSON, Any]] = []
    struct = _struct_of(hint)
    if isinstance(value, dict) and struct is not None and get_origin(hint) is not dict:
        hints = get_type_hints(struct, include_extras=True)
        parts = [(f"{path}.{key}".lstrip("."), item, hints[key]) for key, item in value.items() if key in hints]
    elif isinstance(value, dict) and get_origin(hint) is dict:
        parts = [(f"{path}.{key}", item, get_args(hint)[1]) for key, item in value.items()]
    elif isinstance(value, list) and get_origin(hint) in (tuple, list):
        parts = [(f"{path}[{index}]", item, get_args(hint)[0]) for index, item in enumerate(value)]
    for where, item, inner in parts:
        try:
            msgspec.convert(item, inner)
        except msgspec.ValidationError:
            return _wrong(item, inner, where)
    return path, value, hint
