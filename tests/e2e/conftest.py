"""A place of its own for each test of the whole command."""

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command import KEY, Place
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    place = Place(tmp_path, None, {"OPENAI_API_KEY": KEY})
    yield place
    place.clear()


@pytest.fixture
def at(place: Place) -> Callable[[ScriptedServer], Place]:
    """The place, with the server as its model."""
    return lambda server: replace(place, url=server.url)
