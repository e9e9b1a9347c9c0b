"""Tasks that go on beside a block and no longer than it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

__all__ = ["side_tasks"]


@asynccontextmanager
async def side_tasks() -> AsyncGenerator[TaskGroup]:
    """A group for tasks that are cancelled, and have ended, when the block is over.

    What the block raises is raised as it is, where a plain task group would wrap it. A task that fails cancels the
    block, and its failure is raised in a group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:
            failure = error  # raised below, out of reach of the group
        finally:
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
