"""An editor's end of `retinue acp` as a process: frames over its streams, each checked against the schema."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acp.frames import check_frame, check_result
from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer

__all__ = ["Editor", "editor"]

MODEL = "openai-compatible:scripted"


class Editor:
    """The client's end of the process's streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.frames: list[dict[str, Any]] = []
        self._methods: dict[int, str] = {}
        self._rest = b""

    def give(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def start(self, method: str, **params: Any) -> int:
        id = len(self._methods) + 1
        self._methods[id] = method
        self.give(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
        return id

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(self.start(method, **params))

    def answer(self, id: int | None) -> dict[str, Any]:
        """The frame that answers the request, once it is there."""
        return self.wait(lambda frame: "method" not in frame and frame["id"] == id)

    def wait(self, is_it: Callable[[dict[str, Any]], bool], timeout_s: float = 30) -> dict[str, Any]:
        """The first frame of that kind."""
        seen, until = 0, time.monotonic() + timeout_s
        while True:
            for frame in self.frames[seen:]:
                if is_it(frame):
                    return frame
            seen = len(self.frames)
            self._read(until)

    def _read(self, until: float) -> None:
        out = self.process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"nothing came after {self.frames[-3:]}"
        data = os.read(out.fileno(), 65536)
        assert data, "the process has gone"
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            frame = json.loads(line)
            check_frame(frame, unstable=False)
            if "result" in frame and "id" in frame:
                check_result(self._methods[frame["id"]], frame["result"], unstable=False)
            self.frames.append(frame)

    def leave(self) -> tuple[int, str]:
        """The streams are closed; exit code and stderr."""
        out, err = self.process.communicate(timeout=30)
        for line in (self._rest + out).splitlines():
            check_frame(json.loads(line), unstable=False)
        return self.process.returncode, err.decode()

    def open(self, folder: Path) -> str:
        """The id of a new session."""
        self.request("initialize", protocolVersion=1)
        return self.request("session/new", cwd=str(folder), mcpServers=[])["result"]["sessionId"]

    def start_prompt(self, session: str, text: str) -> int:
        return self.start("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])


@contextmanager
def editor(place: Place, server: ScriptedServer | None = None, *options: str) -> Generator[Editor]:
    """`retinue acp OPTIONS` over that server's model, as an editor starts it in the folder."""
    model = ["--model", MODEL, "--base-url", server.url] if server is not None else []
    process = subprocess.Popen(
        [sys.executable, "-m", "retinue", "acp", *model, *options],
        cwd=place.folder,
        env=place.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield Editor(process)
        finally:
            if process.poll() is None:
                process.kill()
