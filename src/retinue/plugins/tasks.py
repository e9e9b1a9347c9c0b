"""Background tasks as a plugin: the runtime and the tools that control it, always together."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Literal

from msgspec import Meta, Struct

from retinue.agent.signals import MessageClaimed, StopAsked
from retinue.host.host import Host
from retinue.prompt.sections import Section
from retinue.tasks.notices import MAX_WAKES, Notices
from retinue.tasks.runtime import MAX_PER_OWNER, TASKS, Tasks
from retinue.tasks.surfaces import Surface
from retinue.tasks.tools import DEFAULT_WAIT_MS, MAX_WAIT_MS, can_collect, task_tools
from retinue.tasks.wording import guidance

__all__ = ["OPTIONS", "TasksConfig", "plugin"]

_SECTION = "tool:tasks"
_SECTION_ORDER = 106.0


class TasksConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much background work, and how its end is told."""

    max_per_owner: Annotated[int, Meta(ge=1)] = MAX_PER_OWNER
    """Live tasks of one agent."""
    completion_delivery: Literal["wakeup", "quiet"] = "wakeup"
    """Whether the end of a task may open a turn of an idle agent, or waits for the next one."""
    max_consecutive_wakes: Annotated[int, Meta(ge=1)] = MAX_WAKES
    """Turns in a row that notices alone may open; a message of the user restores it."""
    default_wait_ms: Annotated[int, Meta(ge=1, le=MAX_WAIT_MS)] = DEFAULT_WAIT_MS
    """How long `task_output` waits if the call does not say."""


OPTIONS = TasksConfig


@asynccontextmanager
async def plugin(host: Host, config: TasksConfig) -> AsyncGenerator[None]:
    """Background work can be started, collected and stopped. Leaving stops all of it and waits for its end.

    A loaded session whose tasks died with their process is told so. Raises: BadInput for options out of range.
    """
    tasks = Tasks(host, max_per_owner=config.max_per_owner)
    notices = Notices(delivery=config.completion_delivery, max_wakes=config.max_consecutive_wakes)
    with ExitStack() as stack:
        stack.enter_context(host.provide(TASKS, tasks))
        stack.enter_context(tasks.attach(Surface(serves=can_collect, announce=notices.announce)))
        stack.enter_context(host.prompt.add(Section(name=_SECTION, order=_SECTION_ORDER, text=guidance)))
        for made in task_tools(tasks, default_wait_ms=config.default_wait_ms):
            stack.enter_context(host.tools.add(made))
        stack.enter_context(host.bus.on(MessageClaimed, notices.on_claimed))
        stack.enter_context(host.bus.on(StopAsked, lambda event: tasks.kill_all(event.agent, "it was stopped")))
        stack.enter_context(host.agents.on_setup(notices.write_deaths))
        try:
            yield
        finally:
            await tasks.aclose()
