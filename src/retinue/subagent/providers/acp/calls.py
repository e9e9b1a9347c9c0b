"""The calls that a program makes while it works on one prompt, as they stand. They are told and not logged."""

from __future__ import annotations

from typing import TypeVar, get_args

from msgspec.structs import replace

from retinue.agent.agent import Agent
from retinue.base.json import JSON
from retinue.subagent.lifecycle import CallKind, CallStatus, ExternalCall
from retinue.subagent.providers.acp.external import UNNAMED, one_line
from retinue.subagent.providers.acp.wire import Update
from retinue.tools.secrets import Secrets

__all__ = ["ExternalCalls"]

_TITLE_CHARS = 120
_ID_CHARS = 200
_MAX_CALLS = 1_000
"""Of one prompt; of more, nothing is told."""
_KINDS: tuple[CallKind, ...] = get_args(CallKind)
_STATUSES: tuple[CallStatus, ...] = get_args(CallStatus)

T = TypeVar("T")


class ExternalCalls:
    """Of one prompt, which is one step of `agent`."""

    def __init__(self, agent: Agent, secrets: Secrets) -> None:
        """`secrets` are taken out of what the program calls its calls."""
        self._agent = agent
        self._secrets = secrets
        self._known: dict[str, ExternalCall] = {}

    def updated(self, update: Update, *, turn: int, step: int) -> None:
        """Whoever watches knows what is new about the call, if anything is."""
        id = (update.tool_call_id or "")[:_ID_CHARS]
        known = self._known.get(id)
        if known is None and (not id or len(self._known) >= _MAX_CALLS):
            return
        before = known or ExternalCall(
            agent=self._agent, turn=turn, step=step, id=id, title=UNNAMED, kind="other", status="pending"
        )
        now = replace(
            before,
            title=self._title(update.title) if isinstance(update.title, str) else before.title,
            kind=_one_of(_KINDS, update.tool_kind, before.kind),
            status=_one_of(_STATUSES, update.status, before.status),
        )
        self._known[id] = now
        if now != known:
            self._agent.bus.publish(now)

    def _title(self, said: str) -> str:
        return one_line(self._secrets.mask(said), _TITLE_CHARS) or UNNAMED


def _one_of(known: tuple[T, ...], value: JSON, before: T) -> T:
    return next((each for each in known if each == value), before)
