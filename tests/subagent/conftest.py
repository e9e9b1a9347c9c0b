"""Tests of delegation run over both stores, on a clock that stands still."""

from tests.support.store_fixtures import clock, open_store, store

__all__ = ["clock", "open_store", "store"]
