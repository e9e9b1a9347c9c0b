"""Where one scenario happens: a folder, and the database in it, seen by the watch of this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import retinue
from retinue.base.clock import SystemClock
from retinue.compose.app import App
from retinue.compose.config import Overrides, load_config
from retinue.model.client import ModelClient
from retinue.session.store import SessionStore
from retinue.store.sqlite import SqliteStore
from retinue.testing.crashes.watch import Watch, WatchedStore
from retinue.tools.tool import Tool

__all__ = ["Site"]


class Site:
    """Given to `CrashScenario.open`, once per process."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        self.folder = folder
        """Working folder of the agents. It stays from one process to the next."""
        self._watch = watch

    @property
    def home(self) -> Path:
        """Where sessions and long outputs are kept."""
        return self.folder / "home"

    @property
    def database(self) -> Path:
        """The file that `store` opens."""
        return self.home / "retinue.db"

    def store(self) -> SessionStore:
        """The site's database, on which every commit is a point where the process can end. The caller closes it."""
        return WatchedStore(SqliteStore.open(self.database, SystemClock()), self._watch)

    def open(
        self,
        model: ModelClient,
        *,
        settings: Sequence[str] = (),
        tools: Sequence[Tool] = (),
        store: SessionStore | None = None,
    ) -> AbstractAsyncContextManager[App]:
        """The stock composition with `settings` (`path.to.key=value`), and nothing of the user's own configuration.

        `store` is a layer around `store()`, for faults; None = that itself.
        """
        overrides = Overrides(model=f"{model.provider}:model-1", home=str(self.home), settings=settings)
        return retinue.open(
            config=load_config(overrides, cwd=self.folder, environ={}),
            client=model,
            tools=tools,
            cwd=self.folder,
            environ={},
            store=store or self.store(),
        )
