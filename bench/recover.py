"""Kills a fan of 20 children halfway and resumes it, with defaults and nothing by hand: `python bench/recover.py`.

What is counted: children that had their last answer and asked again; requests that were made twice, which may be at
most those in flight when the process died, open or answered a moment before; children whose answer never came. And how
long the resume took.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import subprocess
import time
from typing import Any

import run as bench

CHILDREN, SPREAD, WAIT_MS = 20, 10, 150
MOMENT_S = 0.12
"""An answer that is older was stored when the process died."""
PROMPT = f"fan {CHILDREN} 1 spread={SPREAD} wait={WAIT_MS}"
TOTAL = sum(2 + part % SPREAD for part in range(CHILDREN))
"""Requests of all children together."""


class Life:
    """What the server saw of one process: answered requests of children, as (part, step) with the time."""

    def __init__(self, seen: dict[str, Any], until_s: float = math.inf) -> None:
        rows = [row for row in seen["rows"] if "part=" in row[0]]
        self.answered = {(int(row[0].rpartition("=")[2]), row[1]): row[3] for row in rows}
        self.parts = {part for part, _ in self.answered}
        self.finished = {part for part, step in self.answered if step == 1 + part % SPREAD}
        self.stored = {key for key, at_s in self.answered.items() if at_s < until_s - MOMENT_S}
        self.first_s = min((row[2] for row in seen["rows"]), default=0.0)


def once(seen: bench.Seen, who: str) -> dict[str, float]:
    """Figures of one run that is killed and resumed."""
    participant = bench.PARTICIPANTS[who]
    with bench.folders() as made:
        job: bench.Job = {"mode": "run", "base_url": seen.url + "/v1", "prompt": PROMPT, **made, **participant.options}
        seen.clear()
        process = start(participant, job)
        while len(seen.rows()["rows"]) <= TOTAL // 2:
            time.sleep(0.02)
        killed_s, still_open = time.perf_counter(), seen.rows()["open"]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        time.sleep(2 * WAIT_MS / 1000)  # until the server has noticed
        before = Life(seen.rows(), killed_s)
        seen.clear()
        begun = time.perf_counter()
        process = start(participant, {**job, "resume": True})
        out, err = process.communicate()
        ended = time.perf_counter()
        if process.returncode != 0 or "done" not in out:
            raise SystemExit(f"{who} did not go on: {out[-300:]} {err[-600:]}")
        after = Life(seen.rows())
    last = {part: (part, 1 + part % SPREAD) for part in range(CHILDREN)}
    return {
        "finished": len(before.finished),
        "in_flight": still_open + len(before.answered) - len(before.stored),
        "rerun": sum(last[part] in before.stored for part in after.parts),
        "repeated": len(before.answered.keys() & after.answered.keys()),
        "repeated_stored": len(before.stored & after.answered.keys()),
        "lost": CHILDREN - len(before.finished | after.finished),
        "first_request_s": after.first_s - begun,
        "resume_s": ended - begun,
    }


def start(participant: bench.Participant, job: bench.Job) -> subprocess.Popen[str]:
    """The process that does the job, in a group of its own."""
    return subprocess.Popen(
        participant.argv(job),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=job["workdir"],
        env=bench.environment(),
        start_new_session=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with bench.model_server() as url:
        for who in ("retinue run", "retinue"):
            found = [once(bench.Seen(url), who) for _ in range(options.repeat)]
            worst = {key: max(figures[key] for figures in found) for key in found[0]}
            usual = {key: statistics.median(figures[key] for figures in found) for key in found[0]}
            print(
                f"{who:12} killed with {usual['finished']:.0f} of {CHILDREN} finished, {usual['in_flight']:.0f} in "
                f"flight; asked again, at worst: {worst['repeated']:.0f}, of answers that were stored "
                f"{worst['repeated_stored']:.0f}, of finished children {worst['rerun']:.0f}; "
                f"{worst['lost']:.0f} answers lost; "
                f"{usual['first_request_s']:.2f} s to the first request, {usual['resume_s']:.2f} s to the end",
                flush=True,
            )


if __name__ == "__main__":
    main()
