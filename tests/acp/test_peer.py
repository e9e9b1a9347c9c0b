"""The JSON-RPC peer: whatever arrives, it answers as the protocol says and goes on."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from retinue.base.frames import INVALID_PARAMS, Failure
from retinue.base.json import JSON, decode
from retinue.base.jsonrpc import Peer
from retinue.testing.host import no_errors
from retinue.testing.pipes import MemoryPipe, pipe_pair

PARSE, INVALID, UNKNOWN, INTERNAL, CANCELLED = -32700, -32600, -32601, -32603, -32800


class Other:
    """The other side, in raw bytes; its methods are `echo`, `fail`, `wait` and `break`."""

    def __init__(self, peer: Peer, pipe: MemoryPipe, waiting: anyio.Event, cancelled: list[str]) -> None:
        self.peer = peer
        self.pipe = pipe
        self.waiting = waiting
        self.cancelled = cancelled
        self._rest = b""
        self._frames: list[Any] = []

    async def next(self) -> Any:
        """The next frame of the peer."""
        with anyio.fail_after(10):
            while not self._frames:
                *lines, self._rest = (self._rest + await self.pipe.receive()).split(b"\n")
                self._frames += [json.loads(line) for line in lines]
        return self._frames.pop(0)

    async def ask(self, data: bytes) -> Any:
        """What a line is answered with."""
        self.pipe.give(data + b"\n")
        return await self.next()

    async def is_well(self) -> None:
        """It still answers, and nothing else was waiting to be read."""
        assert await self.ask(b'{"jsonrpc":"2.0","id":"probe","method":"echo","params":{"is":"well"}}') == {
            "jsonrpc": "2.0",
            "id": "probe",
            "result": {"is": "well"},
        }


@asynccontextmanager
async def peer_and_other(max_line_bytes: int = 4096, *, skips_long_lines: bool = True) -> AsyncGenerator[Other]:
    ours, theirs = pipe_pair()
    waiting, cancelled = anyio.Event(), list[str]()

    async def handle(method: str, params: Raw, is_request: bool) -> JSON:
        match method:
            case "echo":
                return decode(params)
            case "fail":
                raise Failure(INVALID_PARAMS, "not so", {"why": "because"})
            case "break":
                raise ZeroDivisionError("broken")
            case "wait":
                waiting.set()
                await anyio.sleep_forever()
            case _:
                raise Failure(UNKNOWN, method)

    peer = Peer(
        theirs,
        handle,
        on_cancel=lambda method, _: cancelled.append(method),
        max_line_bytes=max_line_bytes,
        skips_long_lines=skips_long_lines,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(peer.run)
        yield Other(peer, ours, waiting, cancelled)
        ours.close()


@pytest.mark.parametrize("id", ["7", '"seven"', "null", "123456789012345678901234567890", '""', "-1"])
async def test_an_answer_repeats_the_id_as_it_came(id: str) -> None:
    async with peer_and_other() as other:
        other.pipe.give(f'{{"jsonrpc":"2.0","id":{id},"method":"echo","params":[1]}}\n'.encode())
        assert await other.next() == {"jsonrpc": "2.0", "id": json.loads(id), "result": [1]}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", PARSE),
        (b"\xff\xfe", PARSE),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo"', PARSE),
        (b"nonsense", PARSE),
        (b"[" * 3000, PARSE),
        (b"[]", INVALID),
        (b'[{"jsonrpc":"2.0","id":1,"method":"echo"}]', INVALID),
        (b"7", INVALID),
        (b"null", INVALID),
        (b'"echo"', INVALID),
        (b"{}", INVALID),
        (b'{"jsonrpc":"2.0"}', INVALID),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"echo"}', INVALID),
        (b'{"jsonrpc":"2.0","id":true,"method":"echo"}', INVALID),
        (b'{"jsonrpc":"2.0","id":{},"method":"echo"}', INVALID),
        (b'{"jsonrpc":"2.0","id":[1],"method":"echo"}', INVALID),
        (b'{"jsonrpc":"2.0","id":1}', INVALID),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}', INVALID),
        (b'{"jsonrpc":"2.0","result":1}', INVALID),
    ],
)
async def test_what_is_no_frame_gets_a_protocol_error(line: bytes, code: int) -> None:
    async with peer_and_other() as other:
        answer = await other.ask(line)
        assert (answer["id"], answer["error"]["code"]) == (None, code)
        await other.is_well()


@pytest.mark.parametrize(
    "rest",
    ['"method":"echo"', '"jsonrpc":"1.0","method":"echo"', '"jsonrpc":"2.0","method":7', '"jsonrpc":7,"method":""'],
)
async def test_a_request_that_is_no_frame_is_answered_to_whoever_waits_for_it(rest: str) -> None:
    async with peer_and_other() as other:
        answer = await other.ask(f'{{"id":"seven",{rest}}}'.encode())
        assert (answer["id"], answer["error"]["code"]) == ("seven", INVALID)
        await other.is_well()


async def test_requests_that_fail_are_answered_with_errors() -> None:
    async with peer_and_other() as other:
        answer = await other.ask(b'{"jsonrpc":"2.0","id":1,"method":"nothing"}')
        assert answer["error"]["code"] == UNKNOWN
        answer = await other.ask(b'{"jsonrpc":"2.0","id":2,"method":"fail"}')
        assert answer["error"] == {"code": INVALID_PARAMS, "message": "not so", "data": {"why": "because"}}
        with no_errors(allowed=True):
            answer = await other.ask(b'{"jsonrpc":"2.0","id":3,"method":"break"}')
        assert answer["error"]["code"] == INTERNAL


async def test_notifications_are_never_answered() -> None:
    async with peer_and_other() as other:
        for method in ("echo", "nothing", "fail"):
            other.pipe.give(f'{{"jsonrpc":"2.0","method":"{method}"}}\n'.encode())
        await other.is_well()


async def test_a_line_that_is_too_long_is_passed_over_and_said_so() -> None:
    async with peer_and_other(max_line_bytes=100) as other:
        for _ in range(50):
            other.pipe.give(b"x" * 90)
        answer = await other.ask(b"")
        assert answer["error"]["code"] == INVALID
        assert "100" in answer["error"]["message"]
        await other.is_well()


async def test_a_peer_that_can_miss_nothing_ends_with_a_line_that_is_too_long() -> None:
    async with peer_and_other(max_line_bytes=100, skips_long_lines=False) as other:
        answer = other.peer.begin("ask", {})
        other.pipe.give(b"x" * 101 + b"\n" + b'{"jsonrpc":"2.0","id":1,"result":1}\n')
        with pytest.raises(Failure, match="a line longer than 100 bytes"):
            await answer.result()
        assert other.peer.closed.is_set()


async def test_frames_may_come_in_pieces_and_many_at_once_with_any_line_end() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"\\u00e4"}}'
    async with peer_and_other() as other:
        for at in range(len(line)):
            other.pipe.give(line[at : at + 1])
        other.pipe.give(b"\r\n\n  \n" + line + b"\n" + line + b"\n")
        for _ in range(3):
            assert (await other.next())["result"] == {"a": "ä"}


async def test_a_request_that_is_cancelled_gets_the_code_for_that() -> None:
    async with peer_and_other() as other:
        other.pipe.give(b'{"jsonrpc":"2.0","id":5,"method":"wait"}\n')
        await other.waiting.wait()
        for params in (b"{}", b"[]", b'{"requestId":{}}', b'{"requestId":6}', b'{"requestId":5}'):
            other.pipe.give(b'{"jsonrpc":"2.0","method":"$/cancel_request","params":' + params + b"}\n")
        answer = await other.next()
        assert (answer["id"], answer["error"]["code"]) == (5, CANCELLED)
        assert other.cancelled == ["wait"]


async def test_the_peer_asks_and_is_answered_in_any_order() -> None:
    async with peer_and_other() as other:
        found: dict[str, bytes] = {}

        async def ask(name: str) -> None:
            found[name] = bytes(await other.peer.request(name, {}))

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "one")
            group.start_soon(ask, "two")
            frames = [await other.next(), await other.next()]
            for frame in (*reversed(frames), frames[0]):
                other.pipe.give(
                    json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": frame["method"]}).encode() + b"\n"
                )
        assert found == {"one": b'"one"', "two": b'"two"'}
        await other.is_well()


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -1, "message": "no"}},
        {"error": {"code": "x"}},
        {"error": 7},
        {"error": None},
        {},
        {"result": 1, "error": {"code": -1, "message": "no"}},
        {"jsonrpc": "1.0", "result": 1},
        {"method": None, "result": 1},
    ],
)
async def test_an_error_or_the_end_of_the_connection_fails_what_was_asked(answer: dict[str, Any]) -> None:
    async def ask(other: Other) -> None:
        with pytest.raises(Failure):
            await other.peer.request("well", {})

    async with peer_and_other() as other:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, other)
            frame = await other.next()
            other.pipe.give(json.dumps({"jsonrpc": "2.0", "id": frame["id"]} | answer).encode() + b"\n")
        async with anyio.create_task_group() as group:
            group.start_soon(ask, other)
            await other.next()
            other.pipe.close()
        with pytest.raises(Failure):
            await other.peer.request("well", {})


async def test_an_error_that_is_null_beside_a_result_is_none() -> None:
    async with peer_and_other() as other:
        answer = other.peer.begin("well", {})
        await other.next()
        other.pipe.give(b'{"jsonrpc":"2.0","id":1,"result":7,"error":null}\n')
        assert bytes(await answer.result()) == b"7"


async def test_a_question_that_is_withdrawn_is_cancelled_on_the_other_side() -> None:
    frames: list[Any] = []
    async with peer_and_other() as other:
        async with anyio.create_task_group() as group:
            group.start_soon(other.peer.request, "well", {})
            frames.append(await other.next())
            group.cancel_scope.cancel()
        frames.append(await other.next())
        asked, cancelled = frames
        assert (cancelled["method"], cancelled["params"]) == ("$/cancel_request", {"requestId": asked["id"]})


async def test_the_end_of_the_stream_ends_the_peer_and_what_it_was_doing() -> None:
    async with peer_and_other() as other:
        other.pipe.give(b'{"jsonrpc":"2.0","id":5,"method":"wait"}\n{"jsonrpc"')
        await other.waiting.wait()
    assert other.peer.closed.is_set()
    assert other.cancelled == []


async def test_what_is_answered_at_once_leaves_also_after_the_last_word() -> None:
    async with peer_and_other() as other:
        other.pipe.give(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":1}\n')
        other.pipe.end()
        assert (await other.next())["result"] == 1


class Stuck:
    """A pipe that takes what is sent when it is let, and gives nothing."""

    def __init__(self) -> None:
        self.taken = 0
        self._offered = anyio.Event()
        self._let = anyio.Event()

    async def receive(self) -> bytes:
        await anyio.sleep_forever()
        return b""

    async def send(self, data: bytes) -> None:
        self._offered.set()
        await self._let.wait()
        self._let = anyio.Event()
        self.taken += len(data)

    async def let(self) -> None:
        """What is sent, now or next, is taken."""
        await self._offered.wait()
        self._offered = anyio.Event()
        self._let.set()


async def _nothing(method: str, params: Raw, is_request: bool) -> JSON:
    return None


async def test_whoever_reads_nothing_is_given_up_before_memory_is_full() -> None:
    peer = Peer(Stuck(), _nothing, max_line_bytes=1_000_000)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(peer.run)
            for _ in range(2):
                peer.notify("big", {"text": "x" * 990_000})
            assert not peer.closed.is_set()
            peer.notify("big", {"text": "x" * 990_000})
    assert peer.closed.is_set()


async def test_whoever_reads_slowly_is_told_as_much_as_there_is_to_tell() -> None:
    pipe, lines, is_told = Stuck(), 20, anyio.Event()
    peer = Peer(pipe, _nothing, max_line_bytes=1_000_000)

    async def tell() -> None:
        for _ in range(lines):
            peer.notify("big", {"text": "x" * 990_000})
            await peer.room()
        is_told.set()

    async def read() -> None:
        while True:
            await pipe.let()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for task in (peer.run, tell, read):
                group.start_soon(task)
            await is_told.wait()
            await peer.flushed()
            group.cancel_scope.cancel()
    assert pipe.taken > lines * 990_000


async def test_there_is_room_also_while_others_go_on_saying_things() -> None:
    class Busy(Stuck):
        async def send(self, data: bytes) -> None:
            peer.notify("more", {})
            await anyio.lowlevel.checkpoint()

    peer = Peer(Busy(), _nothing, max_line_bytes=100_000)
    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(peer.run)
            peer.notify("big", {"text": "x" * 99_000})
            await peer.room()
            assert not peer.closed.is_set()
            group.cancel_scope.cancel()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NEARLY_FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON_VALUES,
        "id": JSON_VALUES,
        "method": st.sampled_from(["echo", "fail", "nothing", "$/cancel_request"]) | JSON_VALUES,
        "params": JSON_VALUES,
        "result": JSON_VALUES,
        "error": JSON_VALUES,
    },
)
LINES = (
    st.binary(max_size=200).map(lambda data: data.replace(b"\n", b""))
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | NEARLY_FRAMES.map(lambda value: json.dumps(value).encode())
    | st.integers(5000, 20_000).map(lambda size: b"y" * size)
)


@given(lines=st.lists(LINES, max_size=12), cuts=st.lists(st.integers(1, 400), max_size=12))
def test_nothing_that_arrives_ends_the_peer(lines: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        async with peer_and_other() as other:
            stream = b"\n".join(lines) + b"\n"
            for size in cuts:
                other.pipe.give(stream[:size])
                stream = stream[size:]
            other.pipe.give(stream + b'{"jsonrpc":"2.0","id":"the last","method":"echo","params":1}\n')
            while (frame := await other.next()).get("id") != "the last" or "result" not in frame:
                assert frame["jsonrpc"] == "2.0"
                assert ("result" in frame) != ("error" in frame)

    anyio.run(run)
