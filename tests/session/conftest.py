"""Both stores for the tests of what is built on a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store.homes import Home, InMemory, InSqlite


@pytest.fixture(params=[InMemory, InSqlite], ids=["memory", "sqlite"])
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    home: Home = request.param(tmp_path)
    yield home
    await home.aclose()
