"""The standard streams as they may be given: whoever started the process may have made them non-blocking."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_ECHO = """
import anyio, sys
from retinue.base.standard import StandardStreams

async def main():
    pipe = StandardStreams()
    print("printed")
    found = b""
    while data := await pipe.receive():
        found += data
    await pipe.send(found + sys.stdin.read().encode())

anyio.run(main)
"""


@pytest.mark.parametrize("is_blocking", [True, False])
def test_all_arrives_and_nothing_else(is_blocking: bool) -> None:
    their_in, to_it = os.pipe()
    from_it, their_out = os.pipe()
    os.set_blocking(their_in, is_blocking)
    os.set_blocking(their_out, is_blocking)
    said = b"x" * 50_000
    with subprocess.Popen(
        [sys.executable, "-c", _ECHO], stdin=their_in, stdout=their_out, stderr=subprocess.PIPE
    ) as process:
        os.close(their_in)
        os.close(their_out)
        with open(to_it, "wb") as file:
            file.write(said * 10)
        with open(from_it, "rb") as file:
            assert file.read() == said * 10
        assert process.stderr is not None
        assert process.stderr.read() == b"printed\n"
