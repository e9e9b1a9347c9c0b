"""A long life of one host leaves nothing behind: 2,000 turns of 200 children, on a real store."""

from __future__ import annotations

import os
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from tests.scenarios.soak import soak

IS_LONG = bool(os.environ.get("RETINUE_LONG"))
CHILDREN, TURNS = (20, 10) if IS_LONG else (5, 4)

pytestmark = [pytest.mark.exploration, pytest.mark.timeout(600)]


async def test_memory_files_and_tasks_are_level(tmp_path: Path) -> None:
    before, *during, after = await soak(tmp_path, trees=10, children=CHILDREN, turns=TURNS)

    assert all(figures.live == {} for figures in (*during, after))
    assert {figures.tasks for figures in during} == {during[0].tasks}
    assert (after.tasks, after.descriptors) == (before.tasks, before.descriptors)
    # A lock, a bell, the database and its log for the writer and for whoever forces them to disk, their shared memory.
    assert max(figures.descriptors for figures in during) <= before.descriptors + 7
    # What a child has seen of files is kept for a while. The median, since a table inside Python grows by a megabyte.
    growth = statistics.median(later.traced - earlier.traced for earlier, later in pairwise(during[2:]))
    assert growth / CHILDREN < 2000
    assert during[-1].resident - during[2].resident < 20e6


async def test_the_home_grows_evenly(tmp_path: Path) -> None:
    sizes: list[int] = []
    for trees in (3, 6):
        folder = tmp_path / str(trees)
        folder.mkdir()
        *_, after = await soak(folder, trees=trees, children=CHILDREN, turns=TURNS, is_traced=False)
        sizes.append(after.stored)
    assert 1.5 < sizes[1] / sizes[0] < 2.2
