"""Tests of delegation run over both stores, on a clock that stands still."""

from pathlib import Path

import pytest

from tests.support.store_fixtures import clock, open_store, store

__all__ = ["clock", "open_store", "store"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where external programs keep their sessions."""
    return tmp_path / "state"
