"""Where a connection has its Retinue from: opened at the first need, so that a client is answered at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Struct

from retinue.errors import ModelNotConfigured, RetinueError

if TYPE_CHECKING:
    from retinue.compose.app import App
    from retinue.session.store import SessionStore

__all__ = ["Fixed", "Lazy", "Route", "Source"]


class Route(Struct, frozen=True, kw_only=True):
    """What is known of the configured model before anything is asked of it."""

    images: bool


class Source(Protocol):
    """Gives connections their Retinue."""

    @property
    def cwd(self) -> Path:
        """The folder whose configuration it has."""
        ...

    def examine(self) -> Route:
        """What the configuration says now. Cheap. Raises: ModelNotConfigured, ConfigError."""
        ...

    async def app(self) -> App:
        """The running Retinue. Raises: what opening it raises; the next call tries again."""
        ...

    def reading(self) -> AbstractAsyncContextManager[SessionStore | None]:
        """What is stored, to be read, also where no model is configured; None if nothing ever was.

        Entering raises what else opening a Retinue raises.
        """
        ...


class Fixed:
    """A Retinue that is open already and belongs to somebody else."""

    def __init__(self, app: App, route: Route) -> None:
        self._app = app
        self._route = route

    @property
    def cwd(self) -> Path:
        """See Source."""
        return self._app.cwd

    def examine(self) -> Route:
        """See Source."""
        return self._route

    async def app(self) -> App:
        """See Source."""
        return self._app

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[SessionStore | None]:
        """See Source."""
        yield self._app.host.sessions.store


class Lazy:
    """Opens a Retinue when somebody asks for it; `keep` owns it."""

    def __init__(
        self,
        cwd: Path,
        examine: Callable[[], Route],
        opener: Callable[[], AbstractAsyncContextManager[App]],
        reader: Callable[[], AbstractAsyncContextManager[SessionStore | None]],
    ) -> None:
        self.cwd = cwd
        """See Source."""
        self._examine = examine
        self._opener = opener
        self._reader = reader
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

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[SessionStore | None]:
        """See Source."""
        app: App | None = None
        with suppress(ModelNotConfigured):
            app = await self.app()
        if app is not None:
            yield app.host.sessions.store
            return
        async with self._reader() as store:
            yield store

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
