"""Retinue through its Python interface: the stock composition, one more tool, the durable store.

Job keys: `durability` (process | power), `settings` (more `path.to.key=value`), `uvloop` (use it, if it is installed),
`seldom` (look for cyclic garbage as seldom as the guide to delegating advises), `resume` (go on with the newest root).
Works with any driver that calls `command(job, perf)` and reads the last line of standard output as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
META = {"name": "retinue", "kind": "library", "resume": "session"}


def command(job: dict[str, Any], perf: str) -> tuple[list[str] | None, dict[str, str]]:
    """What runs the job: `$RETINUE_PYTHON`, or the interpreter of the checkout's own environment."""
    if job["mode"] in ("version", "help"):
        return None, {}
    own = HERE.parents[2] / ".venv" / "bin" / "python"
    python = os.environ.get("RETINUE_PYTHON") or (str(own) if own.exists() else sys.executable)
    return [python, str(HERE), json.dumps(job)], {}


def load() -> dict[str, Any]:
    """The imports of a program that uses the library."""
    begun = time.perf_counter()
    import retinue

    _ = retinue.open, retinue.tool
    return {"import_s": round(time.perf_counter() - begun, 4), "version": retinue.__version__}


async def work(job: dict[str, Any]) -> dict[str, Any]:
    """One task on a root agent, to its end."""
    import retinue

    @retinue.tool(safe=True)
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    async with retinue.open(
        model="openai-compatible:fake-model",
        base_url=job["base_url"],
        cwd=job["workdir"],
        home=job["state"],
        settings=[f"store.durability={job.get('durability', 'process')}", *job.get("settings", [])],
        tools=[echo],
    ) as app:
        if job.get("resume"):
            newest = max(await app.host.sessions.store.roots(), key=lambda summary: summary.header.created_at)
            run = await app.resume(newest.header.id)
        else:
            run = await app.run(job["prompt"])
        result = await run.result()
    failures = sum(agent.outcome != "completed" for agent in result.agents)
    error = None if result.error is None else result.error.message
    return {"final": result.output, "failures": failures, "error": error, "outcome": result.outcome}


def main() -> None:
    import asyncio
    import gc

    job = json.loads(sys.argv[1])
    if job.get("seldom"):
        gc.set_threshold(10_000, 20, 20)
    said: dict[str, Any] = {"ok": True}
    said.update(load())
    if job["mode"] != "import":
        begun, spent = time.perf_counter(), time.process_time()
        if job.get("uvloop"):
            import uvloop  # pyright: ignore[reportMissingImports]

            said.update(uvloop.run(work(job)))  # pyright: ignore[reportUnknownMemberType]
        else:
            said.update(asyncio.run(work(job)))
        said["run_s"], said["run_cpu_s"] = time.perf_counter() - begun, time.process_time() - spent
        said["ok"] = str(said["final"]).startswith("done")
    print("\n" + json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
