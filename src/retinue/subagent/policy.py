"""What a child inherits of its parent's policies: explicit overrides alone, as events for the child's own log.

Who owns a policy provides its capture under a seam; delegation asks all of them at once, before anything is awaited.
Defaults of the deployment and what was granted once are never copied. Source: behaviour SS-45..SS-49.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from retinue.agent.agent import Agent
from retinue.host.host import Host, Seam
from retinue.session.events import Payload

__all__ = ["DELEGATION", "SANDBOX_POLICY", "Capture", "captured"]

DELEGATION = "delegation"
"""The source of a policy event that a child was created with."""

Capture: TypeAlias = Callable[[Agent], tuple[Payload, ...]]
"""The events that give a child the agent's explicit policy; none if it has no override. Synchronous."""

SANDBOX_POLICY: Seam[Capture] = Seam("policy.sandbox")
"""Who knows the agents' permission presets."""

_POLICIES = (SANDBOX_POLICY,)


def captured(host: Host, parent: Agent) -> tuple[Payload, ...]:
    """Every policy that `parent` has set explicitly by now, in the order in which a child's log holds them."""
    captures = (host.find(seam) for seam in _POLICIES)
    return tuple(event for capture in captures if capture is not None for event in capture(parent))
