"""Completion notices: what an owner is told about an end that it does not know of, and when that may wake it.

A notice is a durable message under an id that depends on owner and task alone, so none is ever doubled. It is sent in
the batch that logs the end, so none is ever lost between the two. Source: behaviour TT-12..21, TK-04.
"""

from __future__ import annotations

from typing import Literal
from weakref import WeakKeyDictionary

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.signals import MessageClaimed
from retinue.base.ids import MessageId, derived_id
from retinue.errors import BadInput
from retinue.model.content import Source, Text, UserMessage
from retinue.session.events import TaskEnded, TaskStarted
from retinue.session.rows import Delivery, Target
from retinue.tasks.history import unfinished
from retinue.tasks.record import TaskSnapshot
from retinue.tasks.wording import died_text, notice_text, summary_line

__all__ = ["DIED", "MAX_WAKES", "PLUGIN", "Notices"]

PLUGIN = "tool-tasks"
"""Who notices come from. Source: behaviour TT-13."""
MAX_WAKES = 3
"""Turns in a row that notices alone may open. Source: behaviour TT-17."""
DIED = "it died with the process that ran it"


class _Wakes(Struct):
    """What one owner's notices have opened since its user last spoke."""

    spent: int = 0
    turn: int = 0
    """The newest turn for which it is known who opened it."""


class Notices:
    """Makes notices and keeps each owner's budget of wakes."""

    def __init__(self, *, delivery: Literal["wakeup", "quiet"] = "wakeup", max_wakes: int = MAX_WAKES) -> None:
        if type(max_wakes) is not int or max_wakes < 1:
            raise BadInput(f"max_consecutive_wakes must be a whole number of at least 1, not {max_wakes!r}")
        self._delivery = delivery
        self._max_wakes = max_wakes
        self._wakes: WeakKeyDictionary[Agent, _Wakes] = WeakKeyDictionary()
        """By exact agent: another one of the same id begins with a budget of its own."""

    def announce(self, owner: Agent, task: TaskSnapshot) -> Delivery:
        """The notice of a settled task.

        An idle owner gets a turn for it. A busy one reads it in its next step, and a notice that comes too late for the
        turn opens another one, so that none is stranded. Without budget it waits quietly for the next turn.
        """
        may_wake = self._may_wake(owner)
        is_own_turn = may_wake and owner.status == "idle"
        return _delivery(
            owner,
            task.id,
            notice_text(task),
            summary_line(task.id, task.status, task.label),
            target="next-turn" if is_own_turn else "next-step",
            wake=may_wake,
        )

    async def write_deaths(self, agent: Agent) -> None:
        """Tasks that a loaded session began and nobody ended have an end, and their owner a notice. Once, ever."""
        lost = unfinished(agent.session.events)
        if not lost:
            return
        tx = agent.transaction()
        tx.append(agent.session, *[TaskEnded(task_id=start.task_id, status="failed", detail=DIED) for start in lost])
        for start in lost:
            tx.insert(self._death(agent, start))
        tx.submit()

    def _death(self, owner: Agent, task: TaskStarted) -> Delivery:
        """Part of the next step, so that it shares the turn of whatever else the load brings."""
        text = died_text(task.task_id, task.kind, task.label)
        summary = summary_line(task.task_id, "failed", task.label)
        return _delivery(owner, task.task_id, text, summary, target="next-step", wake=self._may_wake(owner))

    def _may_wake(self, owner: Agent) -> bool:
        if self._delivery == "quiet":
            return False
        wakes = self._wakes.get(owner)
        if wakes is None:
            turn = owner.session.turns.open
            wakes = self._wakes[owner] = _Wakes(turn=turn.number if turn is not None else 0)
        return wakes.spent < self._max_wakes

    def on_claimed(self, event: MessageClaimed) -> None:
        """The budget knows who opened the turn: whichever waking message was claimed in it first."""
        wakes = self._wakes.get(event.agent)
        if wakes is None:
            return
        delivery = event.delivery
        source = delivery.message.source
        if source.kind == "user":
            wakes.spent, wakes.turn = 0, event.turn
        elif delivery.wake and event.turn > wakes.turn:
            wakes.turn = event.turn
            if source.kind == "plugin" and source.plugin == PLUGIN:
                wakes.spent += 1


def _delivery(owner: Agent, task_id: str, text: str, summary: str, *, target: Target, wake: bool) -> Delivery:
    id = MessageId(derived_id("task-notice", owner.id, task_id))
    source = Source(kind="plugin", form="notice", plugin=PLUGIN, summary=summary)
    return Delivery(
        session_id=owner.id,
        message=UserMessage(id, (Text(text),), source),
        target=target,
        wake=wake,
        accepted_at=owner.environment.sessions.clock.now_ms(),
    )
