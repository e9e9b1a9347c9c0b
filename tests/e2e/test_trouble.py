"""The disk of a real run fails: the command says so and how to go on, and resume goes on once there is room."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from retinue.session.events import UserMessage
from tests.support.command import Done, Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]

_LONG = "x" * 60_000


def full_at(size_bytes: int) -> Callable[[], None]:
    """Makes every file of the process end there, as a full disk would."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def background(name: str) -> dict[str, object]:
    """A call that starts a child which works beside its parent."""
    return {"tool": "subagent", "args": {"description": f"child {name}", "prompt": f"{name}: do your part"}}


def look(text: str = _LONG) -> dict[str, object]:
    return calls({"tool": "bash", "args": {"command": "echo looked >> looked"}}, text=text)


def failed(done: Done, root: str) -> None:
    """The command failed because of the store, and says what to do and how to go on."""
    assert done.code == 1
    assert "retinue: STORE_FAILED: the database" in done.err
    assert "check the disk" in done.err
    assert f"go on with: retinue resume {root}" in done.err
    assert "Traceback" not in done.err


def test_a_run_without_room_fails_with_the_reason_and_resume_completes_it(at: At) -> None:
    with scripted_server(session("root", "ROOT", *[look() for _ in range(12)], says("all looked at"))) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", preexec_fn=full_at(500_000))
        failed(done, done.session)
        asked = len(server.of("root"))
        assert asked < 12
        place.check(quiescent=False)
        replies = sum(event.type == "assistant/message" for event in place.log(done.session))
        assert replies in (asked, asked - 1), "no request has left that its log does not know"
        server.take_back("root", asked - replies)

        again = place.retinue("resume", done.session)
        assert (again.code, again.out) == (0, "all looked at\n")
        server.check()
    place.check()
    assert len((place.folder / "looked").read_text().splitlines()) in (11, 12)


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(False, id="children in the background"),
        pytest.param(True, id="children that are waited for", marks=pytest.mark.exploration),
    ],
)
def test_children_without_room_are_said_to_be_left_and_resume_completes_them(at: At, waits: bool) -> None:
    """The large replies of children have no room, and what their root writes meanwhile has."""
    start = delegate if waits else background
    with scripted_server(
        session("root", "ROOT", calls(start("ONE"), start("TWO")), *[says("I know", optional=True)] * 6),
        session("one", "ONE", *[look() for _ in range(6)], says("first")),
        session("two", "TWO", *[look() for _ in range(6)], says("second")),
    ) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", "--output", "json", preexec_fn=full_at(500_000))
        root = done.result["session_id"]
        children = {name: _child(place, root, name) for name in ("one", "two")}
        assert done.code == (1 if done.result["error"] else 3), "1 if the root had no room either"
        assert set(done.result["abandoned"]) <= set(children.values())
        assert done.result["abandoned"]
        assert f"go on with: retinue resume {root}" in done.err
        place.check(quiescent=False)
        for name, child in children.items():
            replies = sum(event.type == "assistant/message" for event in place.log(child))
            server.take_back(name, len(server.of(name)) - replies)

        again = place.retinue("resume", root, "--output", "json")
        print(done, again)
        assert (again.code, again.result["abandoned"]) == (0, [])
        if not waits:
            assert {line["outcome"] for line in again.result["agents"]} == {"completed"}
            server.check()
            told = [event.data for event in place.log(root) if isinstance(event.data, UserMessage)]
            assert [message.source.kind for message in told].count("subagent-settled") == 2
    place.check()


def _child(place: Place, root: str, name: str) -> str:
    (child,) = [id for id in place.stored() if id != root and _was_told(place, id, name)]
    return child


def _was_told(place: Place, id: str, name: str) -> bool:
    return any(name.upper() in str(event.data) for event in place.log(id) if event.type == "user/message")


@pytest.mark.exploration
def test_a_run_in_a_home_that_is_damaged_says_so_and_asks_nothing(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("one"))) as server:
        place = at(server)
        root = place.retinue("run", "ROOT").session
        path = place.home / "retinue.db"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 3])
        for command in (("run", "ANOTHER"), ("resume", root, "more"), ("sessions",), ("log", root)):
            done = place.retinue(*command)
            assert (done.code, done.out) == (1, ""), (command, done)
            assert "damaged" in done.err
            assert "Traceback" not in done.err
        path.write_bytes(whole)
        assert place.retinue("resume", root).out == "one\n"
        server.check()
    place.check()
