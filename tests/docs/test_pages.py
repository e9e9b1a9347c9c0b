"""The comparison of pages with what really came can fail."""

import pytest

from tests.docs.pages import Block, Command, commands, fits


@pytest.mark.parametrize(
    ("shown", "came", "is_fit"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one\ntwo", "one\nthree\n", False),
        ("one", "one\ntwo", False),
        ("one\n…", "one\ntwo\nthree", True),
        ("…\nthree", "one\ntwo\nthree", True),
        ("…\nthree", "three", True),
        ("…\nthree\n…", "one\nthree\nfour\nfive", True),
        ("…\nthree\n…", "one\nthirty-three\nfour", False),
        ("a … c", "a b c", True),
        ("a … c", "a b\nc", False),
        ("a.c", "abc", False),
        ("", "", True),
        ("", "anything", False),
    ],
)
def test_what_is_shown_must_have_come(shown: str, came: str, is_fit: bool) -> None:
    assert fits(shown, came) is is_fit


def test_a_console_block_is_commands_and_what_they_show() -> None:
    block = Block("PAGE.md", 1, "console", "$ one\nout\n\n$ two\n$ three x\nlast\n")
    assert commands(block) == [Command("one", "out"), Command("two", ""), Command("three x", "last")]
