"""JSON for model servers: text that has no UTF-8, arguments that are no object, proofs that belong to others.

Shared by all adapters.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from retinue.base.json import JSON, encode

__all__ = ["encode_wire", "object_text", "proof_by"]

_is_object: Callable[[str], object] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def encode_wire(value: JSON) -> bytes:
    """UTF-8 JSON; lone surrogates, which have none, are replaced."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_without_surrogates(value))


def _without_surrogates(value: JSON) -> JSON:
    match value:
        case str():
            # Through UTF-16, so that two halves that belong together become their character.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case list():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {str(_without_surrogates(k)): _without_surrogates(v) for k, v in value.items()}
        case _:
            return value


def object_text(raw: str) -> str:
    """The arguments of a call as the text of a JSON object, whatever the model wrote.

    `{}` for blank text, `{"invalid_json": <what the model wrote>}` for what is no object: servers parse arguments of
    the history and refuse the request, so one slip would break its session for good; wrapped, the model sees its slip.
    """
    try:
        _is_object(raw)
    except (ValueError, RecursionError):
        blank = raw.strip() in ("", "null")
        return "{}" if blank else encode_wire({"invalid_json": raw}).decode()
    return raw


def proof_by(maker: str, signature: str | None) -> str | None:
    """The proof of a reasoning block, if `maker` made it: nobody else accepts it.

    A signature that names its maker reads `maker:proof`; one without a colon, which base64 never holds, names nobody.
    """
    name, colon, proof = (signature or "").partition(":")
    if not colon:
        name, proof = "", name
    return proof or None if name == maker else None
