"""What a project and a user ask of every agent: `AGENTS.md`, from the project's root down to the agent's folder.

Read when an agent is set up, and part of its prompt from then on. Files further in come later and have the last word.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.host.host import Host
from retinue.plugins.places import Found, project_folders, user_folders
from retinue.prompt.sections import Section

__all__ = ["OPTIONS", "SECTION", "InstructionsConfig", "instructions", "plugin"]

SECTION = "deployment:instructions"
_ORDER = 10.0

_LEAD = (
    "What the user and the project ask of you. Later parts come from folders closer to your work and have precedence."
)


class InstructionsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which files are instructions."""

    files: tuple[str, ...] = ("AGENTS.md",)
    """Names; in each folder the first that exists counts."""
    max_bytes: int = 65_536
    """How much of all of them together is shown; what is further out is cut first."""


OPTIONS = InstructionsConfig


@asynccontextmanager
async def plugin(host: Host, config: InstructionsConfig) -> AsyncGenerator[None]:
    """Agents are told what the files say."""

    found = Found(lambda cwd: instructions(cwd, host.options.environ, config))

    async def read(agent: Agent) -> None:
        text = await found.of(agent)
        if text:
            # A function, since what somebody wrote may hold braces.
            agent.prompt.add(Section(name=SECTION, order=_ORDER, text=lambda _: text))

    with host.agents.on_setup(read):
        yield


def instructions(cwd: Path, environ: Mapping[str, str], config: InstructionsConfig) -> str:
    """What agents in `cwd` are told; empty if nobody asks anything of them. Blocks.

    A file that cannot be read is told as such: an agent that misses a rule must not believe that there is none.
    """
    parts: list[str] = []
    room = config.max_bytes
    for folder in reversed([*user_folders(environ)[-1:], *project_folders(cwd)]):
        path = next((folder / name for name in config.files if (folder / name).is_file()), None)
        if path is None:
            continue
        try:
            with open(path, "rb") as file:
                text = file.read(config.max_bytes + 1).decode(errors="replace").strip()
        except OSError as error:
            parts.append(f"[{path} cannot be read: {error.strerror or error}]")
            continue
        if not text:
            continue
        data = text.encode()
        if len(data) > room:
            text = data[:room].decode(errors="ignore") + f"\n[cut here; read {path} for the rest]"
        room = max(0, room - len(data))
        parts.append(f"From {path}:\n\n{text}")
    return "\n\n".join((_LEAD, *reversed(parts))) if parts else ""
