"""Retinue through its command line: the installed `retinue run`, the stock composition, the durable store.

Job keys: `durability` (process | power), `settings` (more `path.to.key=value`), `resume` (go on with the newest root).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

META = {"name": "retinue_cli", "kind": "cli", "resume": "resume <session>"}

_HERE = Path(__file__).resolve()


def _executable() -> list[str]:
    """`$RETINUE_PYTHON -m retinue`, or the command of the checkout's own environment, or this interpreter's."""
    python = os.environ.get("RETINUE_PYTHON")
    own = _HERE.parents[2] / ".venv" / "bin" / "retinue"
    if python:
        return [python, "-m", "retinue"]
    return [str(own)] if own.exists() else [sys.executable, "-m", "retinue"]


def command(job: dict[str, Any], perf: str) -> tuple[list[str] | None, dict[str, str]]:
    """The command line that does the job, and what it needs in its environment."""
    retinue = _executable()
    if job["mode"] in ("version", "help"):
        return [*retinue, f"--{job['mode']}"], {}
    if job["mode"] == "import":
        return None, {}
    options = ["--model", "openai-compatible:fake-model", "--base-url", job["base_url"], "--home", job["state"]]
    settings = [*job.get("settings", [])]
    if job.get("durability"):
        settings.append(f"store.durability={job['durability']}")
    for setting in settings:
        options += ["--set", setting]
    if job.get("resume"):
        listed = subprocess.run([*retinue, "sessions", "--home", job["state"]], capture_output=True, text=True)
        newest = next(word for word in listed.stdout.split() if word.startswith("session-"))
        return [*retinue, "resume", *options, newest], {}
    return [*retinue, "run", *options, job["prompt"]], {}


def result(stdout: str, code: int) -> dict[str, Any]:
    """Whether it worked, and what it said."""
    return {"ok": code == 0 and stdout.startswith("done"), "final": stdout.strip()[-80:]}
