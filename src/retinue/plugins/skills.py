"""Skills: know-how in folders, of which the model sees one line each until it asks for one.

A skill is a folder with a `SKILL.md` whose front matter has `name` and `description`; its text says how to do
something, and other files of the folder are read when the text says so. Looked for in `.retinue/skills`,
`.agents/skills` and `.claude/skills` of each folder from the project's root down, and of the user.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.errors import ConfigError, ToolFailure
from retinue.host.host import Host
from retinue.plugins.places import Found, files_named, project_folders, read_document, user_folders
from retinue.prompt.sections import Section
from retinue.tools.function import tool
from retinue.tools.tool import Tool

__all__ = ["OPTIONS", "Skill", "SkillsConfig", "find_skills", "plugin", "skill_tool"]

_log = logging.getLogger("retinue")

_ORDER = 109.0
_LINE_CHARS = 400
_MAX_FILES = 50


class SkillsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where skills are."""

    folders: tuple[str, ...] = ()
    """Further folders that hold skill folders; absolute. They count before all others."""


OPTIONS = SkillsConfig


class Skill(Struct, frozen=True, kw_only=True):
    """One skill that an agent may ask for."""

    name: str
    description: str
    path: Path
    """Its `SKILL.md`."""


@asynccontextmanager
async def plugin(host: Host, config: SkillsConfig) -> AsyncGenerator[None]:
    """Agents whose folder has skills see them and can load them; others see nothing."""

    found = Found(lambda cwd: find_skills(cwd, host.options.environ, config))

    async def offer(agent: Agent) -> None:
        skills = await found.of(agent)
        if skills:
            agent.tools.offer(skill_tool(skills))
            agent.prompt.add(Section(name="tool:skill", order=_ORDER, text=lambda _: _guidance(skills), tool="skill"))

    host.tools.declare("skill")
    with host.agents.on_setup(offer):
        yield


def find_skills(cwd: Path, environ: Mapping[str, str], config: SkillsConfig) -> dict[str, Skill]:
    """The skills for agents in `cwd`, by name; the one closest to it wins. Blocks.

    A broken one is logged and left out.
    """
    paths = [path for folder in user_folders(environ) for path in sorted((folder / "skills").glob("*/SKILL.md"))]
    paths += [path for folder in project_folders(cwd) for path in files_named(folder, "skills", "*/SKILL.md")]
    paths += [path for folder in config.folders for path in sorted(Path(folder).glob("*/SKILL.md"))]
    skills: dict[str, Skill] = {}
    for path in paths:
        try:
            skill = _read(path)
        except ConfigError as error:
            _log.warning("a skill is left out: %s", error)
        else:
            skills.pop(skill.name, None)
            skills[skill.name] = skill
    return dict(sorted(skills.items()))


def _read(path: Path) -> Skill:
    head = read_document(path).head
    name, description = head.get("name", path.parent.name), head.get("description")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{path}: `name` must be a word")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"{path}: `description` must say when the skill is of use")
    return Skill(name=name.strip(), description=" ".join(description.split()), path=path)


def skill_tool(skills: Mapping[str, Skill]) -> Tool:
    """`skill`, which loads one of `skills`."""

    @tool(safe=True)
    async def skill(name: Annotated[str, "One of the listed names."]) -> str:
        """Load a skill: how to do a kind of task well. Load it before you begin with what its description names."""
        found = skills.get(name)
        if found is None:
            raise ToolFailure("NOT_FOUND", f"there is no skill {name!r}; there are {', '.join(skills)}")
        try:
            return await to_thread.run_sync(_load, found)
        except ConfigError as error:
            raise ToolFailure("NOT_FOUND", str(error)) from error

    return skill


def _load(skill: Skill) -> str:
    folder = skill.path.parent
    files = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file()
        and path != skill.path
        and not any(part.startswith(".") for part in path.parts[len(folder.parts) :])
    )
    shown = [f"- {name}" for name in files[:_MAX_FILES]]
    if len(files) > _MAX_FILES:
        shown.append(f"- and {len(files) - _MAX_FILES} more")
    beside = "\n".join(["", f"Files beside it, in {folder}; read or run them when the text says so:", *shown])
    return f"Skill {skill.name}, from {folder}:\n\n{read_document(skill.path).text}\n{beside if files else ''}".rstrip()


def _guidance(skills: Mapping[str, Skill]) -> str:
    lines = [f"- {skill.name}: {_cut(skill.description)}" for skill in skills.values()]
    return "\n".join(
        ["Skills say how some kinds of task are done well here. Load one with `skill` when it fits:", *lines]
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_CHARS else text[: _LINE_CHARS - 1] + "…"
