"""Where a scenario is performed: the real composition in a temporary folder, with model, clock and ids replaced."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec

from retinue.base.clock import Clock
from retinue.compose.app import App
from retinue.compose.app import open as open_app
from retinue.compose.config import Config, Overrides, load_config
from retinue.errors import ConfigError
from retinue.model.client import ModelClient
from retinue.session.rows import Append, Batch
from retinue.store.sqlite import SqliteStore
from retinue.testing.faults import FaultyStore
from retinue.testing.scenario.folder import Folder
from retinue.testing.scenario.form import RefuseForm
from retinue.testing.scenario.replies import Gates
from retinue.testing.scenario.witness import Witness
from retinue.tools.tool import Tool

__all__ = ["MODEL", "Stage"]

MODEL = "scripted:model-1"
"""The model of a scenario whose configuration names none."""


class Stage:
    """One performance. It outlives restarts of what is performed on it."""

    def __init__(
        self,
        folder: Folder,
        place: Path,
        clock: Clock,
        environ: Mapping[str, str],
        *,
        model: str | None = None,
        base_url: str | None = None,
    ) -> None:
        """`place` is an empty folder; `model` and `base_url` replace those of the configuration.

        Raises: ConfigError for a configuration or a tool that does not hold.
        """
        self.folder = folder
        self.clock = clock
        self.environ = environ
        self.place = place = place.resolve()
        self.work, self.home = place / "work", place / "home"
        self.work.mkdir()
        files = folder.files()
        if files is not None:
            shutil.copytree(files, self.work, dirs_exist_ok=True)
        self.config = self._config(place, model, base_url)
        self.tools = [_tool(name) for name in folder.form.tools]
        self.gates = Gates()
        self.witness = Witness()
        self.store: FaultyStore | None = None

    @property
    def places(self) -> dict[str, str]:
        """Paths of this machine, by the names that stand for them."""
        return {"work": str(self.work), "home": str(self.home), "temp": str(self.place)}

    def _config(self, place: Path, model: str | None, base_url: str | None) -> Config:
        form = self.folder.form
        file = place / "config.yaml"
        if form.config_file is not None:
            file = self.folder.path / form.config_file
        else:
            file.write_bytes(msgspec.yaml.encode(form.config))
        overrides = Overrides(config_file=file, home=str(self.home), model=model, base_url=base_url)
        config = load_config(overrides, cwd=self.work, environ=self.environ)
        # What confines commands is the machine's, and what agents are told of it would differ from one to the other.
        plugins = {**config.plugins, "sandbox": None}
        return msgspec.structs.replace(config, model=config.model or MODEL, plugins=plugins)

    @property
    def provider(self) -> str:
        """The model provider that the configuration names."""
        return (self.config.model or MODEL).partition(":")[0]

    @asynccontextmanager
    async def life(self, client: ModelClient | None) -> AsyncGenerator[App]:
        """A process on this stage, from its start to its end; `client` answers in place of the configured model."""
        self.store = FaultyStore(SqliteStore.open(self.home / "retinue.db", self.clock))
        async with open_app(
            config=self.config,
            cwd=self.work,
            client=client,
            store=self.store,
            clock=self.clock,
            tools=self.tools,
            environ=self.environ,
        ) as app:
            with app.host.sessions.observe(self.witness.observe, durable=True):
                yield app

    async def refuse(self, fault: RefuseForm) -> None:
        """The next such batch will be refused. The session must be there."""
        assert self.store is not None
        self.store.refuse(partial(_appends, await self.witness.wait_id(fault.of), fault.event))

    def crash(self) -> None:
        """Nothing is written any more: for the disk, the process has ended."""
        assert self.store is not None
        self.store.die(len(self.store.batches) + 1)


def _appends(session_id: str, type_name: str, batch: Batch) -> bool:
    ops = (op for op in batch.ops if isinstance(op, Append) and op.session_id == session_id)
    return any(event.type == type_name for op in ops for event in op.events)


def _tool(name: str) -> Tool:
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the tool {name!r} cannot be imported: {error}") from error
    if not isinstance(found, Tool):
        raise ConfigError(f"{name!r} is no tool; write module:name of one")
    return found
