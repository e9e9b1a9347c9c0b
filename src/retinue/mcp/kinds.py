"""How an agent for a host is run: as the configuration says, or as an agent file of the served folder says."""

from __future__ import annotations

from typing import cast

from retinue.agent.agent import Agent
from retinue.compose.app import App
from retinue.compose.keys import read_options
from retinue.errors import BadInput
from retinue.plugins import subagent
from retinue.plugins.agents import AGENT_KINDS
from retinue.subagent.tools.subagent import DelegationOptions

__all__ = ["options_of"]


async def options_of(app: App, desk: Agent, kind: str | None) -> DelegationOptions:
    """The options of an agent of that kind below `desk`; None is the one without a speciality.

    Raises: BadInput for a kind that there is not, with those that there are.
    """
    if kind is None:
        config = read_options("subagent", app.config.plugins["subagent"], subagent.OPTIONS)
        return subagent.delegation_options(cast(subagent.SubagentConfig, config))
    kinds_of = app.host.find(AGENT_KINDS)
    if kinds_of is None:
        raise BadInput("agent files are not used here: the configuration leaves the plugin `agents` out")
    kinds = await kinds_of(desk)
    if kind not in kinds:
        raise BadInput(
            f"there is no agent file {kind!r} for {str(desk.cwd)!r}; there are: {', '.join(kinds) or 'none'}"
        )
    return kinds[kind]
