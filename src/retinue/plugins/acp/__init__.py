"""External agents as children: programs that speak the Agent Client Protocol, each under a delegation tool of its own.

They are programs of the user: they are not confined, they get no key but those named for them (in `env`, or in `known`
for those that are known), and whoever has the permission `read-only` cannot start them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

from anyio.abc import TaskGroup
from msgspec import Meta, Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.base.side_tasks import side_tasks
from retinue.errors import ConfigError
from retinue.host.host import Host
from retinue.plugins.acp.asking import allow, by_policy
from retinue.plugins.acp.known import KNOWN
from retinue.plugins.permissions import PERMISSIONS
from retinue.plugins.shell.environment import command_environment, is_secret_name
from retinue.plugins.shell.running_groups import running_groups
from retinue.plugins.variables import filled
from retinue.subagent.continuation import CONTINUATIONS
from retinue.subagent.providers.acp.client import PROVIDER, AcpClient
from retinue.subagent.providers.acp.external import DEPTH_VARIABLE, ExternalAgent, reject
from retinue.subagent.providers.acp.program import EOF_GRACE_S
from retinue.subagent.providers.acp.provider import AcpProvider
from retinue.subagent.standing import OWN_APPROVALS, OwnApprovals
from retinue.subagent.tools.subagent import BACKENDS, DelegationOptions, delegation_tool
from retinue.subagent.tools.wording import shared_guidance
from retinue.tools.secrets import Secrets

__all__ = ["OPTIONS", "AcpConfig", "ExternalConfig", "plugin"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ORDER = 116.7
_GUIDANCE = (
    "These delegate to other agent programs: {tools}. They have no tool to report with, so all that comes back is the "
    "notice with their closing message; in everything else they are like other delegations."
)


class ExternalConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One external agent. Without a command it is the known one of that name. Durations in seconds."""

    command: str | None = None
    """The program; looked for like a shell does."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """What the program sees besides the plain variables; `${NAME}` and `${NAME:-default}` are filled in. A known one
    also gets the keys of its own maker."""
    cwd: str | None = None
    """The folder it works in, as seen from the child's own; that one if absent."""
    tool_name: str | None = None
    """The name of its delegation tool; `agent_NAME` if absent."""
    description: str | None = None
    """What it is good for; the model chooses by that."""
    background_mode: Literal["continuable", "one-shot"] = "continuable"
    """As for `subagent`. `continuable` needs a program that can take up earlier sessions."""
    enable_run_in_background: bool = True
    """As for `subagent`."""
    max_depth: Annotated[int, Meta(ge=0)] = 3
    """Greatest depth of such a child, counted over nested Retinues too."""
    permissions: Literal["policy", "reject", "allow"] = "policy"
    """What becomes of a call for which the program asks permission. `policy` is what `child_approvals` of `subagent`
    says: it is rejected, or the question goes to the user."""
    start_timeout_s: float = 60.0
    """Bound of each of its answers until it can be given a prompt."""
    silence_s: float = 3600.0
    """A prompt about which nothing was heard for so long is given up."""
    end_grace_s: float = EOF_GRACE_S
    """How long it may take to end when its input has; then it is terminated, and three seconds later killed."""


class AcpConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which external agents can be delegated to."""

    agents: dict[str, ExternalConfig] = {}
    """By name; small letters, digits, `-` and `_`."""


OPTIONS = AcpConfig


@asynccontextmanager
async def plugin(host: Host, config: AcpConfig) -> AsyncGenerator[None]:
    """Each agent has a provider `acp:NAME` and a delegation tool.

    Raises: ConfigError for an agent that cannot be meant; MissingSeam without delegation.
    """
    known = {name: _agent(name, agent, host) for name, agent in config.agents.items()}
    if not known:
        yield
        return
    async with side_tasks() as group:
        with ExitStack() as stack:
            await _install(host, config, known, group, stack)
            yield


async def _install(
    host: Host, config: AcpConfig, known: Mapping[str, ExternalAgent], group: TaskGroup, stack: ExitStack
) -> None:
    backends = host.require(BACKENDS, needed_by="acp")
    continuations = host.require(CONTINUATIONS, needed_by="acp")
    permissions = host.require(PERMISSIONS, needed_by="acp")
    client = AcpClient(host.agents, known, group, groups=await running_groups(host.options.home))
    stack.enter_context(host.add_client(client))
    stack.enter_context(host.agents.on_setup(_without_prompt))
    stack.enter_context(host.provide(OWN_APPROVALS, _approvals_of(config)))
    names: list[str] = []
    for name, agent in known.items():
        told = tuple(value for variable, value in agent.env.items() if is_secret_name(variable))
        stack.enter_context(host.secrets.add(told))

        def check(parent: Agent, name: str = name) -> None:
            permissions.check_foreign(parent, f"agent {name}")

        provider = AcpProvider(
            host.agents,
            client,
            agent,
            check=check,
            wait_quiet=continuations.wait_quiet,
            wait_quiet_again=continuations.wait_quiet_again,
        )
        options = _options(name, provider.name, config.agents[name])
        stack.enter_context(backends.providers.add(provider))
        stack.enter_context(host.tools.add(delegation_tool(backends, provider, options)))
        for control in backends.missing_controls(host.tools, (options,)):
            stack.enter_context(host.tools.add(control))
        names.append(options.tool_name)
    stack.enter_context(host.prompt.add(shared_guidance("tool:acp", _ORDER, _GUIDANCE, names)))


async def _without_prompt(agent: Agent) -> None:
    """A child that is a program of its own is sent no prompt of ours."""
    if agent.options.provider == PROVIDER:
        agent.prompt.silence()


def _approvals_of(config: AcpConfig) -> OwnApprovals:
    def approvals(agent: Agent) -> Literal["reject", "allow"] | None:
        known = config.agents.get(agent.options.model or "") if agent.options.provider == PROVIDER else None
        return None if known is None or known.permissions == "policy" else known.permissions

    return approvals


def _agent(name: str, config: ExternalConfig, host: Host) -> ExternalAgent:
    what = f"plugins.acp: agent {name!r}"
    environ = host.options.environ
    if not _NAME.match(name):
        raise ConfigError(f"{what}: a name has small letters, digits, - and _, at most 32")
    known = KNOWN.get(name)
    if config.command is None and known is None:
        raise ConfigError(f"{what} needs a command; known without one are {', '.join(KNOWN)}")
    if config.command is None and config.args:
        raise ConfigError(f"{what}: args need a command before them")
    for option in ("start_timeout_s", "silence_s", "end_grace_s"):
        value: float = getattr(config, option)
        if not 0 < value < float("inf"):
            raise ConfigError(f"{what}: {option} must be positive and finite, not {value}")
    argv = known.argv if config.command is None and known is not None else (config.command or "", *config.args)
    keys = {key: environ[key] for key in (known.pass_env if known is not None else ()) if environ.get(key)}
    own = {key: filled(what, value, environ) for key, value in config.env.items()}
    return ExternalAgent(
        name=name,
        argv=tuple(filled(what, arg, environ) for arg in argv),
        env={**command_environment(environ), **keys, **own},
        cwd=None if config.cwd is None else Path(filled(what, config.cwd, environ)),
        secrets=Secrets((*host.options.secrets, *keys.values(), *own.values())),
        start_timeout_s=config.start_timeout_s,
        silence_s=config.silence_s,
        end_grace_s=config.end_grace_s,
        depth=_depth(environ),
        approve={"policy": by_policy(host), "reject": reject, "allow": allow}[config.permissions],
    )


def _depth(environ: Mapping[str, str]) -> int:
    """How deep this process is itself: it may work as a child of another."""
    value = environ.get(DEPTH_VARIABLE, "0")
    if not value.isdecimal():
        raise ConfigError(f"{DEPTH_VARIABLE} must be a number, not {value!r}")
    return int(value)


def _options(name: str, provider: str, config: ExternalConfig) -> DelegationOptions:
    tool_name = config.tool_name or f"agent_{name}"
    if not _TOOL_NAME.match(tool_name):
        raise ConfigError(f"plugins.acp: agent {name!r}: tool_name has letters, digits, - and _, at most 64")
    title = KNOWN[name].title if name in KNOWN else name
    return DelegationOptions(
        provider=provider,
        tool_name=tool_name,
        background=config.background_mode if config.enable_run_in_background else "disabled",
        options=AgentOptions(),
        max_depth=config.max_depth,
        purpose=config.description or f"{title}: an agent program of its own, with its own tools and its own model.",
    )
