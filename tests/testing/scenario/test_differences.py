"""A difference says in which session, at which event, and which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.testing.scenario.words import changed_words, differences
from tests.testing.scenario.sets import change, copied, problems


async def test_a_changed_word_of_a_reply_is_found_in_the_log_and_on_stdout(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-settlement")
    change(path / "scenario.yaml", "I counted 7 berths.", "I have counted 7 berths.")
    found = await problems(path)
    assert (
        "session.1 (count the berths), event 9 assistant/message: message.content[1].text: expected 'I counted 7 "
        "berths.', got 'I have counted 7 berths.'"
    ) in found
    assert "session (root), event 15 user/message: content[0].text: " in found
    assert "I {+have +}counted 7 berths" in found


async def test_a_changed_word_of_a_pinned_prompt_is_shown_with_its_surroundings(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-settlement")
    change(path / "system-prompt.1.expected.md", "and self-contained", "and complete")
    assert await problems(path) == (
        "system-prompt.1.expected.md: …before you finish: once, and [-complete-]{+self-contained+}. It shares your "
        "workspace, but…"
    )


async def test_a_changed_schema_is_found_by_the_name_of_its_tool(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-settlement")
    change(path / "tool-schemas.expected.json", "The agent's id, as the call", "The id of the agent, as the call")
    found = await problems(path)
    assert found.startswith("tool-schemas.expected.json: send_message.parameters.properties.subagent_id.description: ")
    assert "[-" in found


@pytest.mark.parametrize("name", ["session.jsonl", "request-header.expected.json", "tool-schemas.expected.json"])
async def test_an_expected_file_that_a_merge_left_in_conflict_fails_and_says_where(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path, "subagent-settlement")
    (path / name).write_text(f"<<<<<<< ours\n{(path / name).read_text()}")
    found = await problems(path)
    assert "<<<<<<< ours" in found
    assert name in found or "session (root), line 1 of what is expected" in found


async def test_an_event_more_and_an_event_less_are_named(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    log = path / "session.1.jsonl"
    lines = log.read_text().splitlines()
    extra = '{"type":"turn/resumed","data":{"turn":1,"n":1}}'
    log.write_text("\n".join([*lines[:3], extra, *lines[4:]]) + "\n")
    assert (await problems(path)).splitlines() == [
        'session.1 (look it up), event 3 turn/resumed is missing: {"turn":1,"n":1}',
        'session.1 (look it up), event 3 step/start was not expected: {"turn":1,"step":1}',
    ]


async def test_of_many_differences_the_first_are_told_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-continuable", "subagent-report")
    log = path / "session.jsonl"
    log.write_text(log.read_text().replace('"turn":', '"turns":'))
    found = (await problems(path)).splitlines()
    assert len(found) == 21
    assert found[-1].startswith("… and ")


def test_the_words_of_a_change_stand_between_a_few_others() -> None:
    text = "One must never wake a sleeping cat, for a cat that sleeps has its reasons, and so has one that does not."
    changed = text.replace("never", "not").replace("does not", "does")
    assert changed_words(text, changed) == (
        "One must [-never-]{+not+} wake a sleeping cat, for … and so has one that does[- not-]."
    )


def test_neighbouring_changes_do_not_repeat_what_is_between_them() -> None:
    assert changed_words("a b c d e", "a B c D e") == "a [-b-]{+B+} c [-d-]{+D+} e"


def test_values_are_compared_place_by_place() -> None:
    found = differences({"a": 1, "b": [1, 2, 3], "c": "x"}, {"a": 2, "b": [1, 3], "d": True})
    assert list(found) == [
        "a: expected 1, got 2",
        "b[1]: expected 2, and it is not there",
        "c: expected 'x', and it is not there",
        "d: not expected: true",
    ]
