"""Configuration keys: known ones are accepted in snake_case and in camelCase, others are refused by name."""

from __future__ import annotations

import re
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, StructMeta

from retinue.base.json import JSON, JSONObject
from retinue.errors import ConfigError

__all__ = ["known_keys", "read_options"]


def known_keys(value: JSONObject, struct: type[Struct], where: str) -> JSONObject:
    """`value` with keys as `struct` spells them, nested structs included, also as the values of a mapping.

    Free-form mappings stay as they are. Raises: ConfigError for a key that there is not, with those that there are, and
    for one given in both spellings.
    """
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


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m.group(1).lower(), name)


def read_options(name: str, value: JSON, struct: type[Struct]) -> Struct:
    """The options of plugin `name`, validated. Raises: ConfigError with the path of the wrong key."""
    where = f"plugins.{name}"
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must hold a mapping of options, not {value!r}")
    try:
        return msgspec.convert(known_keys(value, struct, where), struct)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error
