"""Reading, writing, editing and finding files: the tools `read`, `write`, `edit`, `glob` and `grep`.

What they may touch is for `Permissions` to say. They change nothing that the agent has not seen as it is, replace files
in one step, and never block the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager

from msgspec import Struct

from retinue.agent.signals import AgentDisposed
from retinue.host.host import Host
from retinue.plugins.files._change import edit_tool, write_tool
from retinue.plugins.files._read import read_tool
from retinue.plugins.files._search import search_tools
from retinue.plugins.files._seen import Seen
from retinue.plugins.permissions import PERMISSIONS, Permissions
from retinue.prompt.sections import Section
from retinue.tools.tool import Tool

__all__ = ["OPTIONS", "FilesConfig", "Seen", "file_tools", "plugin", "sections"]


class FilesConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the file tools behave."""

    search_timeout_s: float = 20.0
    """Seconds after which a search is stopped and shows what it found."""


OPTIONS = FilesConfig


@asynccontextmanager
async def plugin(host: Host, config: FilesConfig) -> AsyncGenerator[None]:
    """The tools and their guidance are there. Raises: MissingSeam without permissions."""
    permissions = host.require(PERMISSIONS, needed_by="files")
    seen = Seen()
    with ExitStack() as stack:
        for made in file_tools(permissions, seen=seen, search_timeout_s=config.search_timeout_s):
            stack.enter_context(host.tools.add(made))
        stack.enter_context(host.bus.on(AgentDisposed, lambda event: seen.rest(event.agent.id)))
        for section in sections():
            stack.enter_context(host.prompt.add(section))
        yield


def file_tools(permissions: Permissions, *, seen: Seen | None = None, search_timeout_s: float = 20.0) -> list[Tool]:
    """The five tools. Agents of one host share one `seen`, so that each notices what the others changed.

    A search that takes longer than `search_timeout_s` is stopped and shows what it found.
    """
    known = Seen() if seen is None else seen
    return [
        read_tool(permissions, known),
        write_tool(permissions, known),
        edit_tool(permissions, known),
        *search_tools(permissions, timeout_s=search_timeout_s),
    ]


def sections() -> list[Section]:
    """Guidance for each tool, shown while that tool is visible. Source: behaviour SP-07 for the orders."""
    return [
        Section(name=f"tool:{name}", order=order, text=text, tool=name)
        for name, order, text in (
            ("read", 100, _READ),
            ("write", 101, _WRITE),
            ("edit", 102, _EDIT),
            ("glob", 103, _GLOB),
            ("grep", 104, _GREP),
        )
    ]


_READ = """\
Look at a file with `read` before you reason about it or change it. Ask for the part you need with offset and limit \
when a file is long, and read several files in one message when you know you need them."""

_WRITE = """\
`write` is for new files and for replacing a file as a whole. Do not create files nobody asked for, and keep content \
that you were not asked to change."""

_EDIT = """\
Change existing files with `edit`. Copy the old text from what `read` showed, without the line numbers, and take in \
enough neighbouring lines to make it unique. If the tool says that the file has changed, somebody else works on it: \
read it again and fit your change to what is there now."""

_GLOB = """\
Find files by name with `glob` instead of listing folders with shell commands."""

_GREP = """\
Search file contents with `grep` instead of shell commands. When you only need to know where something is, ask for \
files; narrow with path and glob before you raise the limit."""
