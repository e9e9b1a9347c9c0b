"""Known secrets, such as keys, are taken out of what tools say, before it is shown or kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from retinue.base.json import JSON
from retinue.model.content import InputBlock, Text
from retinue.tools.tool import ToolResult

__all__ = ["MASK", "ByteMask", "redact_result"]

MASK = "[secret]"


def redact_result(result: ToolResult, secrets: Sequence[str]) -> ToolResult:
    """`result` without the secrets: in what it shows, in its typed value, and in its facts for front ends."""
    if not any(secret in text for text in _texts(result) for secret in secrets):
        return result
    ordered = sorted(secrets, key=len, reverse=True)
    return replace(
        result,
        content=tuple(_masked_block(block, ordered) for block in result.content),
        value=_masked_json(result.value, ordered),
        meta={_masked(key, ordered): _masked_json(value, ordered) for key, value in result.meta.items()},
        context=tuple(_masked(text, ordered) for text in result.context),
    )


def _texts(result: ToolResult) -> Iterator[str]:
    for block in result.content:
        if isinstance(block, Text):
            yield block.text
    yield from result.context
    yield from _strings(result.value)
    yield from _strings(result.meta)


def _strings(value: JSON) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)


def _masked_block(block: InputBlock, secrets: Sequence[str]) -> InputBlock:
    return Text(_masked(block.text, secrets)) if isinstance(block, Text) else block


def _masked_json(value: JSON, secrets: Sequence[str]) -> JSON:
    if isinstance(value, str):
        return _masked(value, secrets)
    if isinstance(value, list):
        return [_masked_json(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_masked(key, secrets): _masked_json(item, secrets) for key, item in value.items()}
    return value


def _masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


class ByteMask:
    """Takes secrets out of bytes that come piece by piece. What may begin one waits for the next piece."""

    __slots__ = ("_held", "_secrets")

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = sorted((secret.encode() for secret in secrets), key=len, reverse=True)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on of the bytes so far."""
        if not self._secrets:
            return data
        data = self._masked(self._held + data)
        keep = max(_beginning(data, secret) for secret in self._secrets)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def end(self) -> bytes:
        """What is still held back; nothing more will come."""
        held, self._held = self._masked(self._held), b""
        return held

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        return data


def _beginning(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `secret`."""
    longest = min(len(data), len(secret) - 1)
    return next((size for size in range(longest, 0, -1) if data.endswith(secret[:size])), 0)
