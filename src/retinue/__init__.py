"""Retinue: a Python agent harness whose heart is delegation.

    async with retinue.open(model="deepseek:deepseek-chat") as app:
        run = await app.run("Which tests are slow, and why?")
        async for text in run:
            print(text, end="")
        print((await run.result()).usage)

Importing this package imports nothing else; each name below is loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing is a good part of `retinue --version`
if TYPE_CHECKING:
    from typing import Any

    from retinue.agent.agent import Agent as Agent
    from retinue.compose.app import App as App
    from retinue.compose.app import open as open
    from retinue.compose.config import Config as Config
    from retinue.compose.run import Result as Result
    from retinue.compose.run import Run as Run
    from retinue.compose.run import Withdrawn as Withdrawn
    from retinue.errors import RetinueError as RetinueError
    from retinue.tools.function import tool as tool
    from retinue.tools.tool import ToolContext as ToolContext

__version__ = "0.1.0"

_HOMES = {
    "Agent": "retinue.agent.agent",
    "App": "retinue.compose.app",
    "Config": "retinue.compose.config",
    "Result": "retinue.compose.run",
    "RetinueError": "retinue.errors",
    "Run": "retinue.compose.run",
    "ToolContext": "retinue.tools.tool",
    "Withdrawn": "retinue.compose.run",
    "open": "retinue.compose.app",
    "tool": "retinue.tools.function",
}

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Agent",
    "App",
    "Config",
    "Result",
    "RetinueError",
    "Run",
    "ToolContext",
    "Withdrawn",
    "__version__",
    "open",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
