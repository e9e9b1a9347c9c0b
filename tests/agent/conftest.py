"""Agent tests run over both stores, on a clock that stands still."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.support.store_fixtures import clock, store
from tests.support.stores import KINDS, OpenStore, store_opener

__all__ = ["clock", "fresh_store", "open_store", "store"]


@pytest.fixture(params=KINDS)
def fresh_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], OpenStore]:
    """Makes as many empty stores of one kind as a test wants."""
    places = count()

    def fresh() -> OpenStore:
        folder = tmp_path / str(next(places))
        folder.mkdir()
        return store_opener(request.param, folder)

    return fresh


@pytest.fixture
def open_store(fresh_store: Callable[[], OpenStore]) -> OpenStore:
    return fresh_store()
