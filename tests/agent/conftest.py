"""Agent tests run over both stores, on a clock that stands still."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from tests.support.stores import KINDS, OpenStore, store_opener


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


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


@pytest.fixture
def store(open_store: OpenStore, clock: FakeClock) -> SessionStore:
    return open_store(clock)
