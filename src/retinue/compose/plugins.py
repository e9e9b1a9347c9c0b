"""The plugins that ship with Retinue: their names, the order in which they are loaded, and where they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

if TYPE_CHECKING:
    from retinue.host.host import Plugin

__all__ = ["PLUGINS", "PluginModule", "plugin_module"]

PLUGINS = (
    "permissions",
    "sandbox",
    "output",
    "instructions",
    "skills",
    "files",
    "tasks",
    "shell",
    "todo",
    "web",
    "mcp",
    "subagent",
    "workflow",
    "ralph",
    "agents",
    "report",
    "acp",
)
"""Plugins that ship with Retinue, in the order in which they are loaded."""


class PluginModule(Protocol):
    """What a file or folder in `retinue.plugins` offers."""

    OPTIONS: type[Struct]

    @property
    def plugin(self) -> Plugin[Any]: ...


def plugin_module(name: str) -> PluginModule:
    """The module of a plugin that there is; imported on first use, since some load a lot."""
    return cast(PluginModule, import_module(f"retinue.plugins.{name}"))
