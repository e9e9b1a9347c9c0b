"""Fixtures for tests that run over both stores, on a clock that stands still."""

from pathlib import Path

import pytest

from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from tests.support.stores import KINDS, OpenStore, store_opener

__all__ = ["clock", "open_store", "store"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return store_opener(request.param, tmp_path)


@pytest.fixture
def store(open_store: OpenStore, clock: FakeClock) -> SessionStore:
    return open_store(clock)
