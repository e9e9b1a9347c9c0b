"""Every store of ours keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store.contract_arrivals import Arriving
from tests.store.contract_batches import Batches
from tests.store.contract_leases import Leases
from tests.store.contract_mailbox import Mailboxes
from tests.store.contract_reading import Reading
from tests.store.contract_trees import Trees
from tests.store.homes import Home, InMemory, InSqlite


class Contract(Arriving, Batches, Mailboxes, Leases, Reading, Trees):
    """All of it, for one kind of home."""


class TestMemoryStore(Contract):
    @pytest.fixture
    async def home(self, tmp_path: Path) -> AsyncIterator[Home]:
        home = InMemory(tmp_path)
        yield home
        await home.aclose()


class TestSqliteStore(Contract):
    @pytest.fixture
    async def home(self, tmp_path: Path) -> AsyncIterator[Home]:
        home = InSqlite(tmp_path)
        yield home
        await home.aclose()
