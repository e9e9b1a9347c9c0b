"""A place of its own for each test of the whole command."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import KEY, Place
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def at(tmp_path: Path) -> Callable[[ScriptedServer], Place]:
    """The place, with the server as its model."""
    return lambda server: Place(tmp_path, server.url, {"OPENAI_API_KEY": KEY})
