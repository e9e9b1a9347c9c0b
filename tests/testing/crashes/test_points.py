"""Kill points are words that can be given back."""

from __future__ import annotations

import pytest

from retinue.errors import BadInput
from retinue.testing.crashes.points import KillPoint, parse_plan, render_plan

WORDS = {
    "before commit 1": KillPoint("before commit", 1),
    "after commit 17": KillPoint("after commit", 17),
    "at model request 4 of child a": KillPoint("at model request", 4, "child a"),
    "at model reply 2 of root": KillPoint("at model reply", 2, "root"),
    "at the start of bash 1 of root": KillPoint("at the start of", 1, "root", "bash"),
    "at the end of send_message 3 of read 2 of 3": KillPoint("at the end of", 3, "read 2 of 3", "send_message"),
}


@pytest.mark.parametrize("words", WORDS)
def test_a_point_is_read_as_it_is_written(words: str) -> None:
    assert render_plan((WORDS[words],)) == words
    assert parse_plan(words) == (WORDS[words],)


def test_a_plan_has_one_point_for_each_process() -> None:
    words = "; then ".join(WORDS)
    assert parse_plan(words) == tuple(WORDS.values())
    assert render_plan(parse_plan(words)) == words


@pytest.mark.parametrize("words", ["", "commit 3", "after commit", "at model request 4", "after commit 3;"])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(BadInput, match="no kill point"):
        parse_plan(words)
