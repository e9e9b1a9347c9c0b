"""Agents as files: each Markdown file is a kind of child, offered under a delegation tool of its own.

Front matter says what the agent is for and what it may use, the text is its persona. Looked for in `.retinue/agents`,
`.agents/agents` and `.claude/agents` of each folder from the project's root down, and of the user. Keys that other
programs put there are passed over; a file that cannot be used is logged and left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.errors import ConfigError
from retinue.host.host import Host, Seam
from retinue.plugins.places import Found, files_named, project_folders, read_document, user_folders
from retinue.session.events import ToolFilter
from retinue.subagent.tools.subagent import BACKENDS, DelegationOptions, delegation_tool
from retinue.subagent.tools.wording import shared_guidance

__all__ = ["AGENT_KINDS", "OPTIONS", "AgentFile", "AgentsConfig", "find_agents", "plugin"]

_log = logging.getLogger("retinue")

_PROVIDER = "spawn"
_ORDER = 116.6
_GUIDANCE = (
    "These delegate to agents with a speciality: {tools}. Prefer one whose description fits over a general delegation; "
    "in everything else they are like it."
)
_PREFIX = "agent_"
_NAME_CHARS = 58

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "Read": ("read",),
    "Write": ("write",),
    "Edit": ("edit",),
    "MultiEdit": ("edit",),
    "Bash": ("bash",),
    "Glob": ("glob",),
    "LS": ("glob",),
    "Grep": ("grep",),
    "WebFetch": ("web_fetch",),
    "TodoWrite": ("todo",),
    "Task": ("subagent",),
    "Agent": ("subagent",),
}
"""What other programs call the tools."""

_SAME_MODEL = frozenset({"inherit", "default", "sonnet", "opus", "haiku"})
"""Names of models that mean something to one other program only."""


class AgentsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How agents from files are run."""

    folders: tuple[str, ...] = ()
    """Further folders with agent files; absolute. They count before all others."""
    background_mode: Literal["continuable", "one-shot"] = "continuable"
    """As for `subagent`."""
    enable_run_in_background: bool = True
    """As for `subagent`."""
    max_depth: Annotated[int, Meta(ge=0)] = 3
    """Greatest depth of such a child; a file may ask for less."""


OPTIONS = AgentsConfig

AGENT_KINDS: Seam[Callable[[Agent], Awaitable[Mapping[str, DelegationOptions]]]] = Seam("agents.kinds")
"""Gives, by the name in its file, how a child of each kind is made for an agent."""


class _Head(Struct, frozen=True):
    name: str | None = None
    description: str = ""
    tools: str | list[str] | None = None
    disallowed_tools: str | list[str] | None = field(default=None)
    model: str | None = None
    max_tokens: int | None = None
    max_depth: int | None = None


class AgentFile(Struct, frozen=True, kw_only=True):
    """One kind of child."""

    name: str
    description: str
    persona: str
    tools: tuple[str, ...] | None
    """None: all that its parent has."""
    denied: tuple[str, ...]
    options: AgentOptions
    max_depth: int | None
    path: Path

    @property
    def tool_name(self) -> str:
        """The name of its delegation tool."""
        return _PREFIX + re.sub(r"[^a-z0-9_-]+", "_", self.name.lower()).strip("_")[:_NAME_CHARS]

    def tool_filter(self, known: Collection[str]) -> ToolFilter | None:
        """What its children may use of the `known` tools; None if it says nothing. Other names are passed over."""
        if self.tools is None and not self.denied:
            return None
        allow = None if self.tools is None else tuple(name for name in self.tools if name in known)
        deny = tuple(name for name in self.denied if name in known)
        return ToolFilter(allow, deny or None)


@asynccontextmanager
async def plugin(host: Host, config: AgentsConfig) -> AsyncGenerator[None]:
    """Agents whose folder has agent files can delegate to them. Without delegation nothing is offered."""
    backends = host.find(BACKENDS)
    if backends is None:
        yield
        return
    found = Found(lambda cwd: find_agents(cwd, host.options.environ, config))

    async def kinds(agent: Agent) -> dict[str, DelegationOptions]:
        files = await found.of(agent)
        controls = {control.name for control in backends.controls}
        known = {*host.tools.view, *controls, *(file.tool_name for file in files.values()), "skill"}
        return {file.name: _options(file, config, known) for file in files.values()}

    async def offer(agent: Agent) -> None:
        chosen = (await kinds(agent)).values()
        provider = backends.providers.get(_PROVIDER)
        if not chosen or provider is None:
            return
        for options in chosen:
            agent.tools.offer(delegation_tool(backends, provider, options))
        for control in backends.missing_controls(agent.tools, chosen):
            agent.tools.offer(control)
        names = {options.tool_name for options in chosen}
        agent.prompt.add(shared_guidance("tool:agents", _ORDER, _GUIDANCE, names))

    with host.provide(AGENT_KINDS, kinds), host.agents.on_setup(offer):
        yield


def find_agents(cwd: Path, environ: Mapping[str, str], config: AgentsConfig) -> dict[str, AgentFile]:
    """The agent files for agents in `cwd`, by tool name; the one closest to it wins. Blocks."""
    paths = [path for folder in user_folders(environ) for path in sorted((folder / "agents").glob("*.md"))]
    paths += [path for folder in project_folders(cwd) for path in files_named(folder, "agents", "*.md")]
    paths += [path for folder in config.folders for path in sorted(Path(folder).glob("*.md"))]
    files: dict[str, AgentFile] = {}
    for path in paths:
        try:
            file = _read(path)
        except ConfigError as error:
            _log.warning("an agent file is left out: %s", error)
        else:
            files[file.tool_name] = file
    return dict(sorted(files.items()))


def _read(path: Path) -> AgentFile:
    document = read_document(path)
    try:
        head = msgspec.convert({_snake(key): value for key, value in document.head.items()}, _Head)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    name = (head.name or path.stem).strip()
    if not re.search(r"[A-Za-z0-9]", name):
        raise ConfigError(f"{path}: `name` must have a letter or digit")
    if not head.description.strip():
        raise ConfigError(f"{path}: `description` must say when the agent is of use")
    if not document.text.strip():
        raise ConfigError(f"{path}: below the front matter there must be text that says who the agent is")
    return AgentFile(
        name=name,
        description=head.description.strip(),
        persona=_plain(document.text),
        tools=None if head.tools is None else _tools(head.tools),
        denied=() if head.disallowed_tools is None else _tools(head.disallowed_tools),
        options=_model(head.model, head.max_tokens),
        max_depth=head.max_depth,
        path=path,
    )


def _tools(value: str | list[str]) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    plain = [name.partition("(")[0].strip() for name in names]
    return tuple(dict.fromkeys(ours for name in plain if name for ours in _OTHER_NAMES.get(name, (name,))))


def _model(value: str | None, max_tokens: int | None) -> AgentOptions:
    wanted = (value or "").strip()
    if not wanted or wanted.lower() in _SAME_MODEL:
        return AgentOptions(max_tokens=max_tokens)
    provider, colon, model = wanted.partition(":")
    if not colon:
        return AgentOptions(model=wanted, max_tokens=max_tokens)
    return AgentOptions(provider=provider, model=model, max_tokens=max_tokens)


def _plain(text: str) -> str:
    """`text` as a persona, whose braces name no variables."""
    return text.replace("{{", "{{braces}}")


def _snake(key: Any) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(key)).replace("-", "_").lower()


def _options(file: AgentFile, config: AgentsConfig, known: Collection[str]) -> DelegationOptions:
    return DelegationOptions(
        provider=_PROVIDER,
        tool_name=file.tool_name,
        background=config.background_mode if config.enable_run_in_background else "disabled",
        options=file.options,
        max_depth=config.max_depth if file.max_depth is None else min(file.max_depth, config.max_depth),
        tool_filter=file.tool_filter(known),
        persona=file.persona,
        purpose=file.description,
    )
