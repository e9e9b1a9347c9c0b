"""Measures Retinue beside the floor, on the model server in this folder: `python bench/run.py`.

Runs of all participants are interleaved, since a machine's speed drifts; only ratios of one call mean anything. The
floor is `floor.py`; `+sync` also forces each message to disk, as Retinue does with durability `power`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "adapters"))

import retinue_command  # noqa: E402  # pyright: ignore[reportMissingImports]
import retinue_library  # noqa: E402  # pyright: ignore[reportMissingImports]

Job = dict[str, Any]


class Participant(NamedTuple):
    """Something that does jobs. `options` are added to each."""

    argv: Callable[[Job], list[str]]
    options: Job


def _floor(job: Job) -> list[str]:
    return [sys.executable, str(HERE / "floor.py"), json.dumps(job)]


def _library(job: Job) -> list[str]:
    return retinue_library.command(job, "")[0] or []


def _command(job: Job) -> list[str]:
    return retinue_command.command(job, "")[0] or []


PARTICIPANTS = {
    "floor": Participant(_floor, {}),
    "floor+sync": Participant(_floor, {"sync": True}),
    "retinue": Participant(_library, {"durability": "process"}),
    "retinue+seldom": Participant(_library, {"durability": "process", "seldom": True}),
    "retinue+power": Participant(_library, {"durability": "power"}),
    "retinue run": Participant(_command, {}),
}
BESIDE = {"retinue": "floor", "retinue+seldom": "floor", "retinue+power": "floor+sync", "retinue run": "floor"}
"""Which floor each is compared with."""


class Scenario(NamedTuple):
    """A task and the figure that it is about."""

    prompt: str
    figure: str
    who: tuple[str, ...] = tuple(PARTICIPANTS)


SCENARIOS = {
    "start": Scenario("work 1", "first_request_s", ("floor", "retinue", "retinue run")),
    "steps": Scenario("work 200", "gap_ms", ("floor", "floor+sync", "retinue", "retinue+power")),
    "long": Scenario("work 1000", "late_gap_ms", ("floor", "retinue")),
    "fan": Scenario("fan 100 2", "span_s", ("floor", "floor+sync", "retinue", "retinue+seldom", "retinue+power")),
    "waiting": Scenario("fan 100 2 wait=20", "span_s", ("floor", "retinue", "retinue+seldom")),
    "live": Scenario("fan 1000 1 wait=5000", "peak_mb", ("floor", "retinue")),
}


class Seen:
    """What a model server saw."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def rows(self) -> dict[str, Any]:
        """Each answered request, how many are open, and how many were at most."""
        return json.loads(self._open(self.url + "/rows").read())

    def clear(self) -> None:
        """It has seen nothing."""
        self._open(urllib.request.Request(self.url + "/clear", method="POST")).read()


@contextmanager
def model_server() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    argv = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def environment() -> dict[str, str]:
    """Without proxies, and with bytecode."""
    kept = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "NO_COLOR": "1"}


@contextmanager
def folders() -> Iterator[Job]:
    """A working folder and a state folder, for a job, that go afterwards."""
    base = tempfile.mkdtemp(prefix="bench-")
    job = {name: os.path.join(base, name) for name in ("workdir", "state")}
    for folder in job.values():
        os.mkdir(folder)
    try:
        yield job
    finally:
        shutil.rmtree(base, ignore_errors=True)


def measure(seen: Seen, participant: Participant, prompt: str) -> dict[str, float]:
    """The figures of one run. Raises: SystemExit with what it said, if it failed."""
    seen.clear()
    with folders() as made:
        job: Job = {"mode": "run", "base_url": seen.url + "/v1", "prompt": prompt, **made, **participant.options}
        begun = time.perf_counter()
        process = subprocess.Popen(
            participant.argv(job),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=made["workdir"],
            env=environment(),
        )
        out, err = process.communicate()
        size = sum(path.stat().st_size for path in Path(made["state"]).rglob("*") if path.is_file())
    if process.returncode != 0 or "done" not in out:
        raise SystemExit(f"{participant.argv.__name__} failed on {prompt!r}: {out[-300:]} {err[-600:]}")
    return figures(seen.rows(), begun, size)


def figures(seen: dict[str, Any], begun: float, size: int) -> dict[str, float]:
    """What the server's rows say about one run."""
    rows = seen["rows"]
    first, last = min(row[2] for row in rows), max(row[3] for row in rows)
    root = sorted((row for row in rows if row[0] == rows[-1][0]), key=lambda row: row[2])
    gaps = [(after[2] - before[3]) * 1e3 for before, after in zip(root, root[1:], strict=False)] or [0.0]
    return {
        "first_request_s": first - begun,
        "span_s": last - first,
        "gap_ms": statistics.median(gaps),
        "late_gap_ms": statistics.median(gaps[-50:]),
        "most_open": seen["most_open"],
        "bytes_per_step": size / len(rows),
    }


def peak_mb() -> float:
    """The largest of the processes that this one has waited for, in its life so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def in_child(name: str, prompt: str, url: str) -> None:
    """One run in a process of its own, whose children's largest size is that of the run."""
    found = measure(Seen(url), PARTICIPANTS[name], prompt)
    print(json.dumps({**found, "peak_mb": peak_mb()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all if none")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        in_child(*options.one)
        return
    unknown = set(options.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    with model_server() as url:
        for name in options.scenarios or SCENARIOS:
            scenario = SCENARIOS[name]
            runs: dict[str, list[dict[str, float]]] = {who: [] for who in scenario.who}
            for _ in range(options.repeat):
                for who in scenario.who:
                    argv = [sys.executable, __file__, "--one", who, scenario.prompt, url]
                    runs[who].append(json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout))
            report(name, scenario, runs)


def report(name: str, scenario: Scenario, runs: dict[str, list[dict[str, float]]]) -> None:
    """One line for each participant: medians, and the ratio to its floor."""
    medians = {who: {key: statistics.median(r[key] for r in found) for key in found[0]} for who, found in runs.items()}
    for who, found in medians.items():
        value = found[scenario.figure]
        beside = medians.get(BESIDE.get(who, ""))
        ratio = f"{value / beside[scenario.figure]:6.2f} x" if beside and beside[scenario.figure] else " " * 8
        rest = f"open {found['most_open']:4.0f}  {found['peak_mb']:6.1f} MB  {found['bytes_per_step']:7.0f} B/request"
        print(f"{name:8} {who:14} {scenario.figure:16} {value:9.3f} {ratio}  {rest}", flush=True)


if __name__ == "__main__":
    main()
