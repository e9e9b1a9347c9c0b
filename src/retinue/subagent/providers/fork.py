"""The `fork` provider: a child in this process that knows its parent's conversation up to the last completed turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from retinue.agent.registry import Agents
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    Event,
    ExternalPrompt,
    Opaque,
    TaskEnded,
    TaskStarted,
    TurnResumed,
)
from retinue.session.folds import seed_boundary
from retinue.subagent.one_shot import WaitQuiet, Waits, start_one_shot
from retinue.subagent.provider import Capabilities, Run, RunRequest

__all__ = ["ForkProvider", "completed_turns"]

_NOT_COPIED = (ActivationStart, ActivationEnd, ExternalPrompt, TaskStarted, TaskEnded, TurnResumed, Opaque)
"""What is about the parent's own life: its residencies, tasks and processes. What is opaque may be of that kind, and
by its mark a log says the same without it."""


def completed_turns(events: Sequence[Event]) -> tuple[Event, ...]:
    """The seed of a fork: everything up to the newest end of a turn that is part of the conversation, seqs from 0.

    Empty if no turn has ended. Source: behaviour SE-21, SE-22.
    """
    kept = [event for event in islice(events, seed_boundary(events)) if type(event.data) not in _NOT_COPIED]
    return tuple(event if event.seq == seq else Event(seq, event.time, event.data) for seq, event in enumerate(kept))


class ForkProvider:
    """Children with their parent's past. The snapshot is taken before anything is awaited, so it is of one instant."""

    name = "fork"
    capabilities = Capabilities(
        output_schema=True, depth_limit=True, tool_filter=True, persona=True, inherits_context=True
    )

    def __init__(
        self, agents: Agents, *, wait_quiet: WaitQuiet | None = None, wait_quiet_again: WaitQuiet | None = None
    ) -> None:
        """`wait_quiet` says when a child has come to rest, `wait_quiet_again` when a resumed one has; by default, when
        it is idle.
        """
        self._agents = agents
        self._waits = Waits(wait_quiet, wait_quiet_again)

    async def start(self, request: RunRequest) -> Run:
        """See `Provider.start`."""
        seed = completed_turns(request.parent.session.events)
        return await start_one_shot(self._agents, request, self.name, seed=seed, waits=self._waits)

    async def prepare(self, request: RunRequest) -> Sequence[Event]:
        """The completed turns of this instant: nothing is awaited here."""
        return completed_turns(request.parent.session.events)
