"""What a host says about its agents, as short lines."""

from retinue.agent.signals import AgentCreated, AgentDisposed, SessionStarted
from retinue.host.host import Host

__all__ = ["record"]


def record(host: Host) -> list[str]:
    """A list that grows with each agent that is created, started or disposed."""
    heard: list[str] = []
    host.bus.on(AgentCreated, lambda e: heard.append(f"created live={host.agents.is_live(e.agent)}"))
    host.bus.on(SessionStarted, lambda e: heard.append(f"started {e.source}"))
    host.bus.on(AgentDisposed, lambda e: heard.append(f"disposed live={host.agents.is_live(e.agent)}"))
    return heard
