"""A long life of one host: many turns of many children on a real store, and what is left of them in memory.

`python -m tests.scenarios.soak` prints the figures; `bench/README.md` has some.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import anyio
import anyio.lowlevel
from msgspec import Struct

import retinue
from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.compose.config import Overrides, load_config
from retinue.model.chunks import CallDelta, CallStart, Finish, Sink, TextDelta, Used
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.content import ToolMessage, Usage
from retinue.session.session import Session
from retinue.subagent.resident import Resident
from retinue.subagent.roster import Arrival
from retinue.testing.host import audit
from retinue.testing.model import ScriptedTranscript
from tests.scenarios.stock import CONTINUABLE, continuations, quiet, start

__all__ = ["Figures", "soak"]

_LIVE = (Agent, Session, Resident, Arrival)


class Figures(Struct, frozen=True, kw_only=True):
    """What the process holds while everybody is at rest. Sizes in bytes; 0 where the system does not tell."""

    turns: int
    traced: int
    """What Python's allocator gave out and is still in use."""
    resident: int
    descriptors: int
    tasks: int
    live: dict[str, int]
    """Objects of the kinds that go with an agent."""
    stored: int
    """The size of the home."""


class _Talker:
    """A model that reads a file, reports, and answers; it remembers nothing."""

    provider = "scripted"

    def context_window(self, model: str) -> int | None:
        """See ModelClient."""
        return None

    def transcript(self) -> Transcript:
        """See ModelClient."""
        return ScriptedTranscript()

    def encode(self, request: ModelRequest) -> Body:
        """See ModelClient."""
        assert isinstance(request.transcript, ScriptedTranscript)
        return tuple(request.transcript.encoded[-1:])

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """See ModelClient. A child works in each of its turns; a root only takes notice."""
        assert isinstance(request.transcript, ScriptedTranscript)
        await anyio.lowlevel.checkpoint()
        is_child = any(spec.name == "report" for spec in request.tools)
        works = is_child and not isinstance(request.transcript.messages[-1], ToolMessage)
        if works:
            for index, (name, arguments) in enumerate((("read", '{"path":"note"}'), ("report", '{"output":"half"}'))):
                sink(CallStart(index, f"call-{index}", name))
                sink(CallDelta(index, arguments))
        else:
            sink(TextDelta("that is all there is to say"))
        sink(Used(Usage(input_tokens=10, output_tokens=5, requests=1)))
        sink(Finish("tool-calls" if works else "stop"))

    async def aclose(self) -> None:
        """See ModelClient."""


async def _tree(app: App, children: int, turns: int) -> None:
    """One root from its creation to its end. Its children work side by side; each settles, and comes back for more."""
    run = await app.run("here is work for many")
    ids: list[SessionId] = []

    async def begin(number: int) -> None:
        ids.append(await start(app, run.agent, f"child {number}", "look at the note"))

    for turn in range(turns):
        async with anyio.create_task_group() as group:
            for number in range(children):
                if turn:
                    group.start_soon(continuations(app).send, run.agent, ids[number], f"again {turn}")
                else:
                    group.start_soon(begin, number)
        await quiet(app, run.agent)
    await app.close(run.agent)


def _figures(folder: Path, turns: int) -> Figures:
    """What is held once garbage is collected."""
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    status, files = Path("/proc/self/statm"), Path("/proc/self/fd")
    kinds = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in _LIVE)
    return Figures(
        turns=turns,
        traced=traced,
        resident=int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0,
        descriptors=len(os.listdir(files)) if files.exists() else 0,
        tasks=len(anyio.get_running_tasks()),
        live=dict(kinds),
        stored=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    )


async def soak(folder: Path, *, trees: int, children: int, turns: int, is_traced: bool = True) -> list[Figures]:
    """What one process held after each of `trees` roots, every one with so many children of so many turns.

    The first figures are those before the host was opened, and the last those after it was closed. Fails if a log
    breaks the rules of logs.
    """
    (folder / "note").write_text("a line\n" * 40)
    overrides = Overrides(model="scripted:model-1", home=str(folder / "home"), settings=CONTINUABLE)
    config = load_config(overrides, cwd=folder, environ={})
    found: list[Figures] = []
    if is_traced:
        tracemalloc.start()
    try:
        found.append(_figures(folder, 0))
        async with retinue.open(config=config, client=_Talker(), cwd=folder, environ={}) as app:
            for tree in range(1, trees + 1):
                await _tree(app, children, turns)
                await app.host.sessions.writer.committed()
                found.append(_figures(folder, tree * children * turns))
            await audit(app.host.sessions.store)
        return [*found, _figures(folder, trees * children * turns)]
    finally:
        tracemalloc.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--children", type=int, default=20)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--untraced", action="store_true", help="leave out Python's own account, which costs speed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for found in anyio.run(_of, Path(folder), asked):
            live = ", ".join(f"{count} {name}" for name, count in found.live.items())
            print(
                f"{found.turns:6} turns  traced {found.traced / 1e6:7.3f} MB  resident {found.resident / 1e6:6.1f} MB  "
                f"{found.descriptors:3} files  {found.tasks} tasks  stored {found.stored / 1e6:6.2f} MB  live: {live}"
            )


async def _of(folder: Path, asked: argparse.Namespace) -> list[Figures]:
    how = {"trees": asked.trees, "children": asked.children, "turns": asked.turns}
    return await soak(folder, **how, is_traced=not asked.untraced)


if __name__ == "__main__":
    main()
