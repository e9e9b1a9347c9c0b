"""A Retinue for the demo: the stock composition, with the scripted model in the place of a real one."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from retinue.cli.demo.model import DemoModel
from retinue.compose import app as compose
from retinue.compose.app import App
from retinue.compose.config import bundled_config

__all__ = ["open_demo"]

_PAUSE_S = 0.5


def open_demo(home: Path, tree: Path) -> AbstractAsyncContextManager[App]:
    """Everything real but the model. No file and no variable of the user's changes what it does."""
    is_watched = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    config = bundled_config("agent-core", model="scripted:demo", home=str(home))
    model = DemoModel(pause_s=_PAUSE_S if is_watched else 0.0)
    return compose.open(config=config, cwd=tree, client=model, environ={})
