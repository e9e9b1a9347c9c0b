"""How long a commit takes with each durability, and how many steps a second it leaves: `python bench/durability.py`.

A step is three batches that are waited for one after the other, as a turn does: its input, the reply, the results.
Everything but the store and its writer is left out.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import anyio

from retinue.base.clock import SystemClock
from retinue.base.ids import MessageId, SessionId
from retinue.model.content import Text, UserMessage
from retinue.session.events import SessionHeader
from retinue.session.table import Sessions
from retinue.session.writer import Durability
from retinue.store.sqlite import SqliteStore

COMMITS = 3_000
TEXT = "x" * 500


async def measure(durability: Durability, folder: Path) -> list[float]:
    """Milliseconds of each commit, in order."""
    clock = SystemClock()
    sessions = Sessions(SqliteStore.open(folder / f"{durability}.db", clock), clock, durability)
    header = SessionHeader(id=SessionId("root"), created_at=clock.now_ms())
    hold = await sessions.hold(header.id)
    tx = sessions.transaction()
    session = tx.create(header, header.id, hold)
    await tx.submit().wait()
    took: list[float] = []
    for number in range(COMMITS):
        tx = sessions.transaction()
        tx.append(session, UserMessage(MessageId(f"m{number}"), (Text(TEXT),)))
        begun = time.perf_counter()
        tx.submit()
        await sessions.writer.durable()
        took.append((time.perf_counter() - begun) * 1000)
    await sessions.aclose()
    await sessions.store.aclose()
    return took


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for durability in ("process", "power", "process", "power"):
            place = Path(folder) / str(time.perf_counter_ns())
            place.mkdir()
            took = await measure(durability, place)
            p50, p95 = statistics.median(took), statistics.quantiles(took, n=20)[-1]
            steps = 1000 * COMMITS / 3 / sum(took)
            print(f"{durability:8} commit p50 {p50:.2f} ms, p95 {p95:.2f} ms; {steps:.0f} steps/s")


anyio.run(main)
