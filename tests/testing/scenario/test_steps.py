"""A step that cannot do what it says fails its scenario, and so does a reply that is not as the scripts say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testing.scenario.sets import change, copied, problems, small

_SHORT_S = 0.8
_WAITED = "step 2 (wait): it did not happen"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"cancel": "root"}, "step 2 (cancel): 'root' had nothing to cancel"),
        ({"open": "harbour"}, "step 2 (open): it did not happen within 0.8 s"),
        ({"wait": {"turn_end": "root", "count": 2}}, _WAITED),
        pytest.param({"wait": {"settled": "nobody"}}, _WAITED, marks=pytest.mark.exploration),
        pytest.param({"wait": {"gate": "harbour"}}, _WAITED, marks=pytest.mark.exploration),
        pytest.param({"wait": {"request": "root", "count": 2}}, _WAITED, marks=pytest.mark.exploration),
        ({"advance": 2.5}, "step 2 (advance): it did not happen"),
        ({"end_maintenance": "root"}, "step 2 (end_maintenance): 'root' was in no maintenance"),
        ({"permission": "read-only"}, "step 2 (permission): it failed: MISSING_SEAM"),
        ({"send": " "}, "step 2 (send): it failed: BAD_INPUT"),
        ({"send": "Hello again.", "fails": "BAD_INPUT"}, "step 2 (send): it was expected to fail with BAD_INPUT"),
    ],
)
async def test_a_step_that_does_nothing_fails_and_the_rest_counts_as_unperformed(
    tmp_path: Path, step: dict[str, Any], said: str
) -> None:
    steps = [{"prompt": "Hello."}, step, {"disconnect": True}]
    path = await small(tmp_path, refreshed=False, steps=steps)
    found = await problems(path, patience_s=_SHORT_S)
    assert said in found
    assert "not performed: step 2 (" in found
    assert found.splitlines()[1].endswith(", step 3 (disconnect)")


async def test_a_failure_that_was_expected_is_none(tmp_path: Path) -> None:
    path = await small(tmp_path, steps=[{"send": " ", "fails": "BAD_INPUT"}, {"prompt": "Hello."}])
    assert await problems(path) == ""


async def test_a_refusal_that_never_came_fails(tmp_path: Path) -> None:
    refuse = {"refuse": {"event": "tool/result"}}
    path = await small(tmp_path, refreshed=False, steps=[refuse, {"prompt": "Hello."}])
    assert await problems(path) == "not performed: the store was never asked for what it shall refuse"


async def test_a_permission_answer_that_nobody_asked_for_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, refreshed=False, permission_answers=["allow", "reject"])
    assert await problems(path) == "not performed: nobody was asked, and 2 permission answers are left"


async def test_maintenance_without_an_end_fails(tmp_path: Path) -> None:
    steps = [{"prompt": "Hello."}, {"begin_maintenance": "root"}]
    path = await small(tmp_path, refreshed=False, steps=steps)
    assert await problems(path, patience_s=_SHORT_S) == "the end: it did not happen within 0.8 s"


# Replies


def _script(*replies: object, label: str = "root") -> dict[str, object]:
    return {"label": label, "replies": list(replies)}


async def test_an_unused_reply_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, refreshed=False, scripts=[_script("Good morning.", "Good night.")])
    assert await problems(path) == "reply 2 of the script of '<session>' was never asked for: 'Good night.' (stop)"


async def test_an_optional_reply_may_stay_unused(tmp_path: Path) -> None:
    path = await small(tmp_path, scripts=[_script("Good morning.", {"text": "Good night.", "optional": True})])
    assert await problems(path) == ""


async def test_a_request_without_a_reply_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, refreshed=False, steps=[{"prompt": "Hello."}, {"prompt": "Hello again."}])
    found = await problems(path)
    assert "request 2 of '<session>' was not expected, since the script of '<session>' has only 1 replies" in found


async def test_more_sessions_than_scripts_fail(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    change(path / "scenario.yaml", "- label: look it up", "- label: somebody else")
    found = await problems(path)
    assert "request 1 of 'look it up' (<session.1>) was not expected, since no script fits it" in found
    assert "reply 1 of the script of 'somebody else' was never asked for" in found


async def test_a_call_of_a_tool_that_there_is_not_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, refreshed=False, scripts=[_script({"calls": [{"tool": "fly"}]}, "I cannot fly.")])
    assert "session (root), event 7 tool/result: UNKNOWN_TOOL: " in await problems(path)


async def test_siblings_find_their_scripts_by_their_prompts(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-parallel", "subagent-spawn")
    change(path / "scenario.yaml", "- label: ropes", "- prompt: Count the r.pes")
    change(path / "scenario.yaml", "- label: sails", "- prompt: sails\\.$")
    assert await problems(path) == ""


async def test_a_reply_can_be_the_chunks_that_stream(tmp_path: Path) -> None:
    chunks = [
        {"type": "reasoning", "text": "Who is it?", "signature": "proof"},
        {"type": "text", "text": "Good "},
        {"type": "text", "text": "morning."},
        {"type": "usage", "usage": {"input_tokens": 7, "output_tokens": 2, "requests": 1}},
        {"type": "finish", "reason": "stop"},
    ]
    path = await small(tmp_path, scripts=[_script({"chunks": chunks})])
    log = (path / "session.jsonl").read_text()
    assert '{"type":"reasoning","text":"Who is it?","signature":"proof"},{"type":"text","text":"Good morning."}' in log
    assert '"input_tokens":7' in log


async def test_chunks_without_a_finish_are_a_stream_that_broke_off(tmp_path: Path) -> None:
    replies = [{"chunks": [{"type": "text", "text": "Good"}]}, "Good morning."]
    steps = [{"send": "Hello."}, {"advance": 0.5}, {"wait": "quiet"}]
    path = await small(tmp_path, scripts=[_script(*replies)], steps=steps)
    assert (path / "stdout.expected").read_text() == "> Hello.\nGood morning.\n"


async def test_a_request_that_fails_before_any_chunk_is_what_the_front_end_tells(tmp_path: Path) -> None:
    path = await small(tmp_path, scripts=[_script({"fail": {"kind": "auth", "message": "no such key"}})])
    assert (path / "stdout.expected").read_text() == "> Hello.\nretinue: MODEL_AUTH: no such key\n"


async def test_a_reply_that_hangs_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    steps = [{"send": "Hello."}, {"wait": {"request": "root"}}, {"cancel": "root"}, {"wait": "quiet"}]
    path = await small(tmp_path, scripts=[_script({"hang": True})], steps=steps)
    assert '"reason":"aborted","cause":"user"' in (path / "session.jsonl").read_text()


async def test_a_value_that_is_not_in_the_request_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, refreshed=False, scripts=[_script("You are {{fromRequest:called (\\w+)}}.")])
    assert "did not suit its script: nothing matches" in await problems(path)


async def test_paths_of_the_machine_stand_by_their_names_on_both_sides(tmp_path: Path) -> None:
    path = await small(
        tmp_path,
        tools=["tests.testing.scenario.growing:count"],
        scripts=[_script({"calls": [{"tool": "count", "args": {"things": "ropes"}}]}, "Look in {{work}}.")],
    )
    log = (path / "session.jsonl").read_text()
    assert "There are 0 ropes in <work>." in log
    assert (path / "stdout.expected").read_text() == "> Hello.\nLook in <work>.\n"


async def test_an_error_that_was_only_logged_fails(tmp_path: Path) -> None:
    path = await small(
        tmp_path,
        refreshed=False,
        tools=["tests.testing.scenario.growing:grumble"],
        scripts=[_script({"calls": [{"tool": "grumble"}]}, "Done.")],
    )
    found = await problems(path)
    assert found.startswith("an error was logged: ")
    assert "ValueError('out of tune')" in found
