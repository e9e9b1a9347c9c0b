"""How runs end: every outcome with its exit code and what it says."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from retinue.session.events import TurnEnd
from tests.support.command import KEY, Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


def test_what_a_server_fails_at_for_a_moment_is_asked_again(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", {"fail": 429, "retry_after": 0.05}, calls(delegate("CHILD")), says("done")),
        session("child", "CHILD", {"cut": True, "text": "half a sen"}, {"fail": 503}, says("a whole sentence")),
    ) as server:
        done = at(server).retinue("run", "ROOT", "--output", "jsonl", "--stream")
        server.check()

    assert (done.code, done.result["output"]) == (0, "done")
    child = done.result["agents"][0]["id"]
    pieces = [o["chunk"] for o in done.objects if o["type"] == "chunk" and o["session_id"] == child]
    said = [
        (p["kind"], p["attempt"], p.get("text", "")) for p in pieces if p["kind"] == "withdrawn" or p["text"].strip()
    ]
    assert said[0] == ("text", 1, "half a sen")
    assert [(kind, attempt) for kind, attempt, _ in said[1:3]] == [("withdrawn", 1), ("withdrawn", 2)]
    assert "".join(text for kind, attempt, text in said[3:]) == "a whole sentence"
    at(server).check()


def test_every_ending_has_its_exit_code_and_says_why(at: At) -> None:
    """All at the same time, in one home."""
    endings = {
        "WHOLE": (says("done", usage={"prompt_tokens": 5000}), (0, "completed", "done", None)),
        "CEILING": ({"truncated": "the first half"}, (1, "max-tokens", "the first half", "MAX_TOKENS")),
        "DECLINED": ({"refusal": "rather not"}, (1, "refusal", "rather not", "REFUSAL")),
        "LOCKED": ({"fail": 401, "message": f"key {KEY} is wrong"}, (1, "error", "", "MODEL_AUTH")),
    }
    with scripted_server(*(session(name, name, reply) for name, (reply, _) in endings.items())) as server:
        place = at(server)
        # The limit of tokens is passed by the first answer: an answer that is there is an answer.
        running = {n: place.start("run", n, "--output", "json", "--max-tokens", "100") for n in endings}
        ended = {name: each.done() for name, each in running.items()}
        server.check()
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}

    for name, (_, expected) in endings.items():
        done, result = ended[name], ended[name].result
        error = result["error"] and result["error"]["code"]
        assert (done.code, result["outcome"], result["output"], error) == expected
        assert error is None or f"retinue: {error}: " in done.err
        assert KEY not in done.out + done.err
    assert [path for path in place.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []
    place.check()


@pytest.mark.exploration
def test_the_time_limit_stops_the_whole_tree(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD"))), session("child", "CHILD", says("never", hold="never"))
    ) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", "--output", "json", "--timeout", "5")
        server.wait(lambda s: s.of("child")[0].outcome == "aborted")

    assert (done.code, done.result["outcome"], done.result["error"]["code"]) == (1, "timeout", "TIMEOUT")
    assert done.result["agents"][0]["outcome"] == "aborted"
    (end,) = [e.data for e in place.log(done.result["session_id"]) if isinstance(e.data, TurnEnd)]
    assert (end.reason, end.cause, end.detail) == ("aborted", "limit", "timeout")
    assert f"retinue resume {done.result['session_id']}" in done.err
    place.check()


def test_no_request_leaves_once_the_token_limit_is_reached(at: At) -> None:
    used = {"prompt_tokens": 400, "completion_tokens": 100}
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD"), usage=used), says("unused", optional=True)),
        session("child", "CHILD", says("an answer", usage=used)),
    ) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", "--output", "json", "--max-tokens", "1000")
        server.check()
        assert len(server.requests) == 2

    assert (done.code, done.result["outcome"]) == (1, "over-budget")
    assert done.result["usage"]["input_tokens"] + done.result["usage"]["output_tokens"] == 1000
    place.check()


@pytest.mark.exploration
def test_a_limit_that_stops_the_children_of_a_root_that_was_done_is_named(at: At) -> None:
    begin = {"tool": "subagent", "args": {"description": "kid", "prompt": "CHILD", "run_in_background": True}}
    used = {"prompt_tokens": 400, "completion_tokens": 100}
    limits = {"TIMEOUT": ("--timeout", "4"), "OVER_BUDGET": ("--max-tokens", "1000")}
    kid = {"TIMEOUT": says("x", hold="never"), "OVER_BUDGET": says("unused", optional=True)}
    for code, limit in limits.items():
        # The child's second request waits for the answer of the root, so that the root is done in both cases.
        bash = {"tool": "bash", "args": {"command": "sleep 1"}}
        with scripted_server(
            session("root", "ROOT", calls(begin), says("started", usage=used)),
            session("child", "CHILD", calls(bash, usage=used), kid[code]),
        ) as server:
            place = at(server)
            done = place.retinue("run", "ROOT", "--output", "json", *limit)
        assert (done.code, done.result["outcome"], done.result["error"]["code"]) == (3, "completed", code)
        assert done.result["abandoned"] == [done.result["agents"][0]["id"]]
        assert done.result["agents"][0]["outcome"] is None
        assert f"retinue: {code}: " in done.err
        assert "retinue: ABANDONED: " in done.err
        again = f"go on with: retinue resume {done.result['session_id']} --model openai-compatible:scripted --base-url"
        assert f"{again} {server.url}" in done.err


def test_an_answer_that_nobody_can_get_is_no_success(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("the answer"))) as server:
        place = at(server)
        command = ["--model", "openai-compatible:scripted", "--base-url", server.url, "ROOT"]
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$0" -m retinue run "$@" >&-', sys.executable, *command],
            cwd=place.folder,
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "retinue: OUTPUT_CLOSED: " in done.stderr
