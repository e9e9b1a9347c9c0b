"""Known secrets, such as keys, are taken out of what tools say, before it is shown or kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from retinue.model.content import InputBlock, Text
from retinue.tools.tool import ToolResult

__all__ = ["MASK", "ByteMask", "redact_result"]

MASK = "[secret]"


def redact_result(result: ToolResult, secrets: Sequence[str]) -> ToolResult:
    """`result` without the secrets in what it shows. The typed value is not touched."""
    texts = [block.text for block in result.content if isinstance(block, Text)]
    if not any(secret in text for text in texts for secret in secrets):
        return result
    return replace(result, content=tuple(_redacted(block, secrets) for block in result.content))


def _redacted(block: InputBlock, secrets: Sequence[str]) -> InputBlock:
    if not isinstance(block, Text):
        return block
    text = block.text
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return Text(text)


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
