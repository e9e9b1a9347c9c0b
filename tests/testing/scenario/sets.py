"""Sets of scenarios in a temporary folder: copies of real ones to be broken, and small ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from retinue.compose.plugins import PLUGINS
from retinue.testing.scenario.suite import refresh, run
from tests.house.checkout import ROOT

__all__ = ["SET", "change", "copied", "problems", "small"]

SET = ROOT / "tests" / "snapshots"

_SMALL: dict[str, Any] = {
    "about": "The root answers.",
    "header": {"name": "small", "pins": True},
    "config": {
        "persona": "You lead a small crew.",
        "retry": {"jitter": 0},
        "plugins": dict.fromkeys(PLUGINS),
    },
    "steps": [{"prompt": "Hello."}],
    "scripts": [{"label": "root", "replies": ["Good morning."]}],
}


def copied(folder: Path, *names: str) -> Path:
    """Those scenarios of the project in `folder`, with the configurations they share; the path of the first one."""
    for file in SET.glob("*.yaml"):
        shutil.copy(file, folder)
    for name in names:
        shutil.copytree(SET / name, folder / name)
    return folder / names[0]


async def small(folder: Path, name: str = "small", *, refreshed: bool = True, **form: Any) -> Path:
    """A scenario whose root only answers, changed by `form`; what it expects is written, unless it breaks a rule."""
    path = folder / name
    path.mkdir()
    (path / "scenario.yaml").write_bytes(msgspec.yaml.encode({**_SMALL, **form}))
    if refreshed:
        await refresh(path)
    return path


def change(path: Path, before: str, after: str) -> None:
    """The file says `after` in the place of `before`."""
    text = path.read_text()
    assert before in text, f"{path.name} does not hold {before!r}"
    path.write_text(text.replace(before, after))


async def problems(path: Path, *, patience_s: float = 20.0) -> str:
    """All that is wrong with the scenario. `patience_s` is short where a step is there to fail by it."""
    return "\n".join(await run(path, patience_s=patience_s))
