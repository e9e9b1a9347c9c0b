"""Where a connection has its Retinue from: opened at the first need, so that a client is answered at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Struct

from retinue.errors import RetinueError

if TYPE_CHECKING:
    from retinue.compose.app import App

__all__ = ["Fixed", "Lazy", "Route", "Source"]


class Route(Struct, frozen=True, kw_only=True):
    """What is known of the configured model before anything is asked of it."""

    images: bool


class Source(Protocol):
    """Gives connections their Retinue."""

    def examine(self) -> Route:
        """What the configuration says now. Cheap. Raises: ModelNotConfigured, ConfigError."""
        ...

    async def app(self) -> App:
        """The running Retinue. Raises: what opening it raises; the next call tries again."""
        ...


class Fixed:
    """A Retinue that is open already and belongs to somebody else."""

    def __init__(self, app: App, route: Route) -> None:
        self._app = app
        self._route = route

    def examine(self) -> Route:
        """See Source."""
        return self._route

    async def app(self) -> App:
        """See Source."""
        return self._app


class Lazy:
    """Opens a Retinue when somebody asks for it; `keep` owns it."""

    def __init__(self, examine: Callable[[], Route], opener: Callable[[], AbstractAsyncContextManager[App]]) -> None:
        self._examine = examine
        self._opener = opener
        self._wanted = anyio.Event()
        self._tried = anyio.Event()
        self._closed = anyio.Event()
        self._outcome: App | RetinueError | None = None

    def examine(self) -> Route:
        """See Source."""
        return self._examine()

    async def app(self) -> App:
        """See Source."""
        if self._outcome is None or isinstance(self._outcome, RetinueError):
            self._wanted.set()
            await self._tried.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, RetinueError):
            raise self._outcome
        return self._outcome

    async def keep(self) -> None:
        """Opens what is asked for; over when it is closed again. What is at work then stays open in its log."""
        while not self._closed.is_set():
            await self._wanted.wait()
            if self._closed.is_set():
                return
            try:
                async with self._opener() as app:
                    self._publish(app)
                    await self._closed.wait()
            except RetinueError as error:
                self._publish(error)

    def close(self) -> None:
        """`keep` ends as soon as it can, in order. Nobody may ask for anything any more."""
        self._closed.set()
        self._wanted.set()

    def _publish(self, outcome: App | RetinueError) -> None:
        self._outcome = outcome
        self._wanted = anyio.Event()
        tried, self._tried = self._tried, anyio.Event()
        tried.set()
