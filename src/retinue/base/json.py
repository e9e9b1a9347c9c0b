"""JSON values and their bytes. One encoder and one decoder for the whole process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

__all__ = ["JSON", "JSONObject", "decode", "encode"]

if TYPE_CHECKING:
    JSON: TypeAlias = "None | bool | int | float | str | list[JSON] | dict[str, JSON]"
else:
    # msgspec resolves annotations at run time and knows no recursive alias; it accepts any JSON value this way.
    JSON = Any
JSONObject: TypeAlias = dict[str, JSON]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()

encode = _encoder.encode
"""UTF-8 JSON of any JSON value or struct. Raises: TypeError on anything else."""


def decode(data: bytes | str) -> JSON:
    """The value of a JSON text. Raises: ValueError (msgspec.DecodeError) with the position."""
    return _decoder.decode(data)
