"""The live tree on a terminal. Frames are drawn in a helper thread: a terminal that is paused stops no agent."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread
from rich.console import Console
from rich.live import Live
from rich.text import Text

from retinue.base.side_tasks import side_tasks
from retinue.cli.headless.watch import Line, Watch
from retinue.cli.text import brief, duration, tokens

__all__ = ["LiveTree", "frame", "live_tree"]

_FRAME_S = 0.2
_TASK_WIDTH = 40
_MARKS = {True: ("●", "cyan"), False: ("○", "dim")}


class LiveTree:
    """What `live_tree` draws."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop")
        self._drawing = anyio.Lock()

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """Nothing is drawn meanwhile, so that people can read and type below the tree."""
        async with self._drawing:
            self.stop()
            try:
                yield
            finally:
                self.start()

    def start(self) -> None:
        """It has its place on the screen."""
        self._live.start()

    def stop(self) -> None:
        """Its last state stays where it is."""
        self._live.update(frame(self._watch, self._console.height))
        self._live.stop()

    async def draw(self) -> None:
        """It is drawn again and again; runs until it is cancelled."""
        while True:
            async with self._drawing:
                text = frame(self._watch, self._console.height)
                await to_thread.run_sync(_update, self._live, text, abandon_on_cancel=True)
            await anyio.sleep(_FRAME_S)


@asynccontextmanager
async def live_tree(watch: Watch) -> AsyncGenerator[LiveTree]:
    """The tree of `watch` is drawn and redrawn while the context is open; its last state stays."""
    tree = LiveTree(watch)
    tree.start()
    try:
        async with side_tasks() as group:
            group.start_soon(tree.draw)
            yield tree
    finally:
        tree.stop()


def _update(live: Live, text: Text) -> None:
    live.update(text, refresh=True)


def frame(watch: Watch, height: int) -> Text:
    """The tree in at most `height` lines; of more agents, those at work are shown first."""
    lines = list(_in_order(watch))
    room = max(height - 2, 3)
    hidden = 0
    if len(lines) > room:
        keep = sorted(range(len(lines)), key=lambda i: (not lines[i].is_working, i))[:room]
        hidden = len(lines) - room
        lines = [lines[i] for i in sorted(keep)]
    waits = any(line.state is None for line in watch.lines.values())
    text = Text("\n").join(_line(line, waits=waits and line.parent is None) for line in lines)
    if hidden:
        text.append(f"\n… and {hidden} more", style="dim")
    return text


def _in_order(watch: Watch) -> list[Line]:
    """Parents before their children, siblings in the order in which they began."""
    children: dict[object, list[Line]] = {}
    for line in list(watch.lines.values()):
        children.setdefault(line.parent if line.parent in watch.lines else None, []).append(line)
    ordered: list[Line] = []
    todo = list(reversed(children.get(None, [])))
    while todo:
        line = todo.pop()
        ordered.append(line)
        todo.extend(reversed(children.get(line.id, [])))
    return ordered


def _line(line: Line, *, waits: bool) -> Text:
    """`waits`: others of the tree are not done, so a root that completed its turn has more to do."""
    mark, style = _MARKS[line.is_working]
    is_over = line.state is not None and not (waits and line.state == "completed")
    if is_over:
        mark, style = ("✓", "green") if line.state == "completed" else ("✗", "red")
    text = Text("  " * line.depth, no_wrap=True, overflow="ellipsis")
    text.append(mark, style=style)
    if line.parent is None:
        text.append(f" {brief(line.label, _TASK_WIDTH) or line.id}", style="bold")
    else:
        text.append(f" {brief(line.label) or line.id}")
    text.append(
        f"  {_doing(line) if is_over or line.state is None else 'waiting'}",
        style="red" if line.state not in (None, "completed") else "dim",
    )
    used = line.usage.input_tokens + line.usage.output_tokens
    end_ms = line.ended_ms or int(time.time() * 1000)
    elapsed = duration((end_ms - line.started_ms) / 1000) if line.started_ms else ""
    text.append(f"  {tokens(used)}  {elapsed}", style="dim")
    return text


def _doing(line: Line) -> str:
    if line.state is not None:
        return line.state
    if line.calls or line.outside:
        names = [brief(name, 40) for name in (*line.calls.values(), *line.outside.values())]
        counted = {name: names.count(name) for name in names}
        shown = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counted.items())
        return f"asks: {shown}" if line.held else shown
    if line.trouble:
        return f"trying again: {brief(line.trouble)}"
    return "thinking" if line.is_asking else "working" if line.is_working else "waiting"
