"""What agents may do to the machine: presets, rules within them, and questions about what the rules leave open.

`presets.py` judges paths and commands when a tool asks, `rules.py` judges calls before their tool runs, and `gate.py`
is the layer around every call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.host.approvals import APPROVALS, Approvals, Policy
from retinue.host.context import Contribution
from retinue.host.host import Host, Seam
from retinue.plugins.permissions.gate import Gate
from retinue.plugins.permissions.presets import Permissions
from retinue.plugins.permissions.rules import Rules, RulesConfig
from retinue.plugins.permissions.standing import Preset, Standing
from retinue.subagent.policy import SANDBOX_POLICY

__all__ = ["OPTIONS", "PERMISSIONS", "Permissions", "PermissionsConfig", "Preset", "RulesConfig", "plugin"]

CONTEXT_ORDER = 110.0
"""Source: behaviour SP-08."""

PERMISSIONS: Seam[Permissions] = Seam("permissions")
"""Where tools ask what they may do."""


class PermissionsConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What tools may do."""

    preset: Preset = "workspace-write"
    writable: tuple[str, ...] = ()
    """Folders that `workspace-write` may change besides the agent's own; absolute."""
    closed: tuple[str, ...] = ()
    """Files and folders that are closed to all file tools and empty for confined commands; absolute or relative to the
    working folder."""
    rules: RulesConfig = RulesConfig()
    when_nobody_answers: Policy = "reject"
    """What becomes of a call that needs an approval where nobody is there to be asked."""


OPTIONS = PermissionsConfig


@asynccontextmanager
async def plugin(host: Host, config: PermissionsConfig) -> AsyncGenerator[None]:
    """Tools can ask, and no call runs against the rules. An agent whose log pins a preset has that one, also after it
    was resumed, is told of it, and gives it to the children that it starts. Raises: ConfigError for a bad rule."""
    home, cwd = host.options.home, host.options.cwd
    permissions = Permissions(
        config.preset,
        home=home,
        readable=() if home is None else (home / "spill",),
        writable=[Path(folder) for folder in config.writable],
        secrets=[*(() if cwd is None else (cwd / ".env",)), *_closed(config, cwd)],
    )

    approvals = Approvals(config.when_nobody_answers)
    gate = Gate(host, permissions, Rules(config.rules), approvals)

    async def pin(agent: Agent) -> None:
        permissions.enter(agent.session, await _above(host, permissions, agent.session.header.parent_session))
        agent.scope.callback(permissions.forget, agent.id)

    told = Contribution(name="sandbox:policy", order=CONTEXT_ORDER, text=permissions.context)
    with (
        host.provide(PERMISSIONS, permissions),
        host.provide(SANDBOX_POLICY, permissions.capture),
        host.provide(APPROVALS, approvals),
        host.sessions.observe(permissions.follow),
        host.agents.on_setup(pin),
        host.context.add(told),
        host.chains.tool_call.wrap(gate),
    ):
        yield


def _closed(config: PermissionsConfig, cwd: Path | None) -> list[Path]:
    return [(cwd or Path.cwd()) / Path(path).expanduser() for path in config.closed]


async def _above(host: Host, permissions: Permissions, parent: SessionId | None) -> Standing | None:
    """The standing of the parent, from its log if it is not here. A parent that is gone permits what the child has."""
    if parent is None:
        return None
    standing = permissions.standing(parent)
    if standing is not None:
        return standing
    live = host.sessions.live(parent)
    if live is not None:
        header, events = live.header, live.events
    elif await host.sessions.store.summary(parent) is not None:
        stored = await host.sessions.store.read(parent)
        header, events = stored.header, stored.events
    else:
        return None
    return permissions.learn(header, events, await _above(host, permissions, header.parent_session))
