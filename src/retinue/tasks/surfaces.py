"""Control surfaces: what lets an owner collect and stop its tasks. Without one, no work may be started.

It owns who is served by which surface, and asks them for completion notices. It knows no tool by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.scope import Undo
from retinue.errors import MissingSeam
from retinue.session.rows import Delivery
from retinue.tasks.record import TaskSnapshot

__all__ = ["Surface", "Surfaces"]

_log = logging.getLogger("retinue")


def _everybody(_: Agent | None) -> bool:
    return True


def _nothing(_owner: Agent, _task: TaskSnapshot) -> Delivery | None:
    return None


class Surface(Struct, frozen=True, kw_only=True):
    """One way to control tasks, and how it tells an owner that a task has ended."""

    serves: Callable[[Agent | None], bool] = _everybody
    """Narrows who is served within its scope, such as agents that see the tools. None stands for no owner."""
    announce: Callable[[Agent, TaskSnapshot], Delivery | None] = _nothing
    """The message for an owner that does not know of the end yet, or None. Sent in the batch that logs the end."""


class Surfaces:
    """The attached surfaces, each for all owners or for one agent's scope."""

    __slots__ = ("_attached",)

    def __init__(self) -> None:
        self._attached: tuple[tuple[Surface, Agent | None], ...] = ()

    def attach(self, surface: Surface, scope: Agent | None = None) -> Undo:
        """`surface` serves every owner, or with `scope` that agent alone, until the result is called."""
        attached = (surface, scope)
        self._attached = (*self._attached, attached)

        def undo() -> None:
            self._attached = tuple(x for x in self._attached if x is not attached)

        return Undo(undo)

    def close(self) -> None:
        """Nobody is served any more."""
        self._attached = ()

    def serving(self, owner: Agent | None) -> list[Surface]:
        """Surfaces that serve `owner`: those of its own scope first, then the global ones."""
        scoped = [s for s, scope in self._attached if scope is not None and scope is owner]
        shared = [s for s, scope in self._attached if scope is None]
        return [surface for surface in (*scoped, *shared) if surface.serves(owner)]

    def require(self, owner: Agent | None) -> None:
        """Return if some surface serves `owner`. Raises: MissingSeam, which says what is missing."""
        if self.serving(owner):
            return
        who = "tasks without an owner" if owner is None else f"agent {owner.id!r}"
        if self._attached:
            raise MissingSeam(
                f"no task control surface serves {who}: the tools task_output, task_list and task_kill are not visible "
                "there, so background work could not be collected; do it in the foreground"
            )
        raise MissingSeam(
            f"background work needs a task control surface, and none is attached that serves {who}; "
            "load the plugin 'tasks', which brings task_output, task_list and task_kill"
        )

    def notice(self, owner: Agent, task: TaskSnapshot) -> Delivery | None:
        """The first notice that a surface of `owner` makes, so two tell it once. One that fails is passed over."""
        for surface in self.serving(owner):
            try:
                made = surface.announce(owner, task)
            except Exception:
                _log.exception("a task surface could not announce %s to agent %s", task.id, owner.id)
                continue
            if made is not None:
                return made
        return None
