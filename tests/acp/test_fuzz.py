"""Any order of known methods with any parameters, while a session is open: the server answers and goes on."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.testing.model import ScriptedModel
from retinue.testing.script import optional, text
from tests.acp.client import SUBAGENTS, connected
from tests.scenarios.stock import stock

METHODS = (
    "initialize",
    "authenticate",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/close",
    "session/set_mode",
    "session/prompt",
    "session/cancel",
    "$/cancel_request",
    "fs/read_text_file",
)
SESSION, FOLDER = "<session>", "<folder>"
JUNK = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just([]) | st.just({}) | st.just([[1]])
PARAMS = JUNK | st.fixed_dictionaries(
    {},
    optional={
        "sessionId": st.just(SESSION) | JUNK,
        "cwd": st.just(FOLDER) | JUNK,
        "mcpServers": st.just([]) | JUNK | st.lists(st.fixed_dictionaries({"name": JUNK, "command": JUNK}), max_size=2),
        "prompt": JUNK | st.lists(st.fixed_dictionaries({"type": st.just("text") | JUNK, "text": JUNK}), max_size=2),
        "modeId": st.just("read-only") | JUNK,
        "methodId": st.just("environment") | JUNK,
        "protocolVersion": st.just(1) | JUNK,
        "clientCapabilities": JUNK,
        "cursor": JUNK,
        "requestId": st.integers(0, 9) | JUNK,
    },
)
FRAMES = st.tuples(st.sampled_from(METHODS), PARAMS, st.booleans())


@settings(max_examples=max(10, settings().max_examples // 3))
@given(frames=st.lists(FRAMES, max_size=10))
def test_nothing_that_a_client_asks_ends_the_server(frames: list[tuple[str, Any, bool]]) -> None:
    async def run(folder: Path) -> None:
        model = ScriptedModel()
        for _ in frames:
            model.script("", *[optional(text("yes"))] * 20)
        async with stock(model, folder, at_rest=False) as app, connected(app, capabilities=SUBAGENTS) as client:
            session = await client.new(folder)
            for method, params, is_request in frames:
                given = json.loads(json.dumps(params).replace(SESSION, session).replace(FOLDER, str(folder)))
                if not is_request:
                    client.give({"jsonrpc": "2.0", "method": method, "params": given})
                    continue
                id = client.begin(method, given)
                await client.wait(lambda id=id: id in client.answers)
            await client.request("session/list")

    with TemporaryDirectory() as folder:
        anyio.run(run, Path(folder).resolve())
