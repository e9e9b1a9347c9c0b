"""A host that writes what it should not, or reads nothing, gets answers and costs nothing."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp.shared.message import SessionMessage

from retinue.mcp.stdio import host_streams

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class Given:
    """A pipe on which a host has written all that it says. It reads everything, or nothing."""

    def __init__(self, said: bytes, *, is_reading: bool = True) -> None:
        self._said = said
        self._is_reading = is_reading
        self.read = b""

    async def receive(self) -> bytes:
        said, self._said = self._said[:7000], self._said[7000:]
        return said

    async def send(self, data: bytes) -> None:
        if not self._is_reading:
            await anyio.sleep_forever()
        self.read += data


async def heard(said: bytes, **options: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What reaches the server of it, and what the host is told at once."""
    pipe = Given(said)
    messages: list[dict[str, Any]] = []
    async with host_streams(pipe, **options) as (reading, _):
        async for message in reading:
            assert isinstance(message, SessionMessage)
            messages.append(message.message.model_dump(exclude_unset=True))
    return messages, [json.loads(line) for line in pipe.read.splitlines()]


@pytest.mark.parametrize("half", ["\\ud83d", "\\udc00", "\\udc00\\ud83d"])
async def test_half_a_character_is_mended(half: str) -> None:
    frame = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"text":"a' + half + 'b\\ud83d\\ude00"}}\n'
    (message,), told = await heard(frame.encode())
    assert message["params"]["text"] == "a" + "\N{REPLACEMENT CHARACTER}" * (len(half) // 6) + "b\N{GRINNING FACE}"
    assert told == []


async def test_bytes_that_are_no_text_are_mended() -> None:
    (message,), _ = await heard(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"text":"\xff"}}\n')
    assert message["params"]["text"] == "\N{REPLACEMENT CHARACTER}"


async def test_the_frames_of_a_batch_are_taken_one_by_one() -> None:
    messages, told = await heard(json.dumps([PING, {**PING, "id": "b"}, 5]).encode() + b"\n")
    assert [message["id"] for message in messages] == [1, "b"]
    assert [(one["id"], one["error"]["code"]) for one in told] == [(None, wire.INVALID_REQUEST)]


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (b"hello", None, wire.PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":7,"method":"pi', None, wire.PARSE_ERROR),
        (b'{"a":' * 100_000, None, wire.PARSE_ERROR),
        (b"null", None, wire.INVALID_REQUEST),
        (b'{"id":7,"method":"ping"}', 7, wire.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":"x","method":"ping","params":[]}', "x", wire.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, wire.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":7}', 7, wire.INVALID_REQUEST),
    ],
)
async def test_whoever_writes_no_frame_is_told(line: bytes, id: object, code: int) -> None:
    messages, (told,) = await heard(line + b"\n\n" + json.dumps(PING).encode() + b"\r\n")
    assert [message["id"] for message in messages] == [1]
    assert (told["id"], told["error"]["code"]) == (id, code)


async def test_a_line_that_is_too_long_is_passed_over_and_said() -> None:
    said = b"x" * 50_000 + b"\n" + json.dumps(PING).encode() + b"\n"
    messages, (told,) = await heard(said, max_line_bytes=20_000)
    assert len(messages) == 1
    assert "20000 bytes" in told["error"]["message"]


async def test_a_host_that_reads_nothing_is_left() -> None:
    answer = SessionMessage(wire.JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
    with anyio.fail_after(20):
        async with host_streams(Given(b"", is_reading=False)) as (_, writing):
            await writing.send(answer)
