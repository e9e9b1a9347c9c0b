"""Commands beside a live run: what they send reaches whoever drives the tree, once, at any depth."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from retinue.base.ids import SessionId
from retinue.session.events import ActivationEnd, TurnEnd
from retinue.session.rows import StoredRow
from tests.support.command import Place, Running
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

At = Callable[[ScriptedServer], Place]

CONTINUABLE = ("--set", "plugins.subagent.background_mode=continuable", "--output", "json")


def start(name: str) -> dict[str, object]:
    args = {"description": f"the {name.lower()}", "prompt": f"{name}: look", "run_in_background": True}
    return {"tool": "subagent", "args": args}


def is_answered(server: ScriptedServer, name: str, count: int) -> bool:
    return len(server.of(name)) == count and server.of(name)[-1].outcome == "answered"


def ids(place: Place) -> list[str]:
    """Every session of the home, the root first."""
    return [str(id) for id in place.stored()]


def rows(place: Place, id: str) -> list[StoredRow]:
    return place.stored()[SessionId(id)][1]


def controls(place: Place, id: str) -> list[tuple[str, str, str | None]]:
    return [(r.delivery.kind, r.state, r.reason) for r in rows(place, id) if r.delivery.is_control]


def turn_ends(place: Place, id: str) -> list[tuple[str, str | None]]:
    return [(e.data.reason, e.data.cause) for e in place.log(id) if isinstance(e.data, TurnEnd)]


def endings(place: Place, id: str) -> list[str]:
    return [event.data.outcome for event in place.log(id) if isinstance(event.data, ActivationEnd)]


def settlements(place: Place, id: str) -> int:
    return sum(row.delivery.message.source.kind == "subagent-settled" for row in rows(place, id))


def at_work(place: Place, server: ScriptedServer, *waiting: str) -> Running:
    """A run whose root has started the named agents and answered, while they wait for their models."""
    running = place.start("run", "ROOT", *CONTINUABLE)
    server.wait(lambda s: is_answered(s, "root", 2) and all(s.of(name) for name in waiting))
    return running


def test_a_message_to_a_root_at_work_is_its_next_turn(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("first", hold="go"), says("then {{re:(salmon)}}"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("root")))
        (root,) = ids(place)
        sent = place.retinue("send", root[:15], "and", "salmon")
        assert (sent.code, sent.err) == (0, "")
        assert sent.out.startswith("sent msg-")
        assert f"process {running.process.pid} on " in sent.out
        server.open("go")
        done = running.done()
        server.check()
    assert (done.code, done.result["output"]) == (0, "then salmon")
    place.check()


def test_a_child_that_had_settled_is_brought_back_by_the_owner(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A"), start("B")), says("started"), says("a is done"), says("again"),
                says("b is done"), says("extra", ) | {"optional": True}),
        session("a", "A: look", says("first"), says("second {{re:(salmon)}}")),
        session("b", "B: look", says("held", hold="go")),
    ) as server:  # fmt: skip
        place = at(server)
        running = place.start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: is_answered(s, "root", 3) and bool(s.of("b")))
        _, a, b = ids(place)
        if endings(place, b):
            a, b = b, a
        assert endings(place, a) == ["completed"]
        assert place.retinue("send", a, "salmon?").code == 0
        server.wait(lambda s: is_answered(s, "root", 4))
        assert endings(place, a) == ["completed", "completed"]
        server.open("go")
        done = running.done()
        server.check()
    assert done.code == 0
    place.check()


def test_an_interrupt_ends_the_turn_of_a_child_and_leaves_its_own_children(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A")), says("started"), says("told"), says("x") | {"optional": True}),
        session("a", "A: look", calls(start("B")), says("never", hold="never"), says("b said so")),
        session("b", "B: look", says("held", hold="go")),
    ) as server:
        place = at(server)
        running = at_work(place, server, "b")
        server.wait(lambda s: len(s.of("a")) == 2)
        _, a, b = ids(place)
        done = place.retinue("interrupt", a)
        assert (done.code, done.out.startswith(f"interrupting {a}; process {running.process.pid}")) == (0, True)
        server.wait(lambda s: s.of("a")[1].outcome == "aborted")
        assert endings(place, b) == []
        server.open("go")
        assert running.done().code == 0
        server.check()
    assert turn_ends(place, a) == [("aborted", "user"), ("completed", None)]
    assert controls(place, a) == [("interrupt", "claimed", None)]
    assert endings(place, b) == ["completed"]
    place.check()


@pytest.mark.exploration
def test_an_interrupted_grandchild_settles_and_its_parent_goes_on(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A")), says("started"), says("told"), says("x") | {"optional": True}),
        session("a", "A: look", calls(start("B")), says("waiting"), says("b was stopped")),
        session("b", "B: look", says("held", hold="never")),
    ) as server:
        place = at(server)
        running = at_work(place, server, "b")
        server.wait(lambda s: is_answered(s, "a", 2))
        *_, b = ids(place)
        assert place.retinue("interrupt", b, "--key", "once").code == 0
        assert running.done().code == 0
        again = place.retinue("interrupt", b, "--key", "once")
        assert (again.code, again.out) == (0, f"interrupted before: {b}; nothing was done again\n")
        server.check()
    assert endings(place, b) == ["aborted"]
    assert controls(place, b) == [("interrupt", "claimed", None)]
    place.check()


def test_a_stop_of_the_root_ends_everything_and_tells_each_parent_once(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A")), says("started", hold="never")),
        session("a", "A: look", calls(start("B")), says("waiting")),
        session("b", "B: look", says("held", hold="never")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: len(s.of("root")) == 2 and is_answered(s, "a", 2) and bool(s.of("b")))
        root, a, b = ids(place)
        assert place.retinue("send", root, "unread").code == 0
        assert place.retinue("send", b, "unread too").code == 0
        stopped = place.retinue("stop", root, "--key", "k")
        assert (stopped.code, stopped.out.startswith(f"stopping {root} and everything below it; process")) == (0, True)
        done = running.done()
        server.check()
    assert (done.code, done.result["outcome"], done.result["abandoned"]) == (1, "aborted", [])
    assert turn_ends(place, root)[-1] == ("aborted", "user")
    assert (endings(place, a), endings(place, b)) == (["aborted"], ["aborted"])
    assert (settlements(place, root), settlements(place, a)) == (1, 1)
    for id in (root, b):
        (unread,) = [row for row in rows(place, id) if "unread" in str(row.delivery.message.content)]
        assert (unread.state, unread.reason) == ("withdrawn", "stopped")
    assert controls(place, root) == [("stop", "claimed", None)]
    assert place.retinue("stop", root, "--key", "k").out == f"stopped before: {root}; nothing was done again\n"
    place.check()


@pytest.mark.exploration
def test_a_stop_of_a_child_takes_those_below_it_and_its_parent_is_told(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A")), says("started"), says("it was stopped")),
        session("a", "A: look", calls(start("B")), says("waiting")),
        session("b", "B: look", says("held", hold="never")),
    ) as server:
        place = at(server)
        running = at_work(place, server, "b")
        server.wait(lambda s: is_answered(s, "a", 2))
        root, a, b = ids(place)
        assert place.retinue("stop", a).code == 0
        done = running.done()
        server.check()
    assert (done.code, done.result["output"]) == (0, "it was stopped")
    assert (endings(place, a), endings(place, b)) == (["aborted"], ["aborted"])
    assert (settlements(place, root), settlements(place, a)) == (1, 1)
    assert controls(place, a) == [("stop", "claimed", None)]
    place.check()


@pytest.mark.exploration
def test_a_stop_of_a_tree_that_nobody_drives_is_carried_out_without_a_model(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A")), says("started", hold="never"), says("again")),
        session("a", "A: look", calls(start("B")), says("waiting")),
        session("b", "B: look", says("held", hold="never")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: len(s.of("root")) == 2 and is_answered(s, "a", 2) and bool(s.of("b")))
        root, a, b = ids(place)
        running.kill()
        seen = sum(len(server.of(name)) for name in ("root", "a", "b"))
        done = place.retinue("stop", root)
        assert (done.code, done.out) == (0, f"stopped {root} and everything below it\n"), done.err
        assert turn_ends(place, root) == [("aborted", "user")]
        assert (endings(place, a), endings(place, b)) == (["aborted"], ["aborted"])
        assert (settlements(place, root), settlements(place, a)) == (1, 1)
        assert sum(len(server.of(name)) for name in ("root", "a", "b")) == seen
        again = place.retinue("resume", root, "go on", "--output", "json")
        assert (again.code, again.result["output"]) == (0, "again")
    place.check()


@pytest.mark.exploration
def test_a_stop_of_a_child_that_nobody_drives_leaves_the_rest_of_the_tree_as_it_is(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(start("A")), says("started", hold="never")),
        session("a", "A: look", calls(start("B")), says("waiting")),
        session("b", "B: look", says("held", hold="never")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: len(s.of("root")) == 2 and is_answered(s, "a", 2) and bool(s.of("b")))
        root, a, b = ids(place)
        running.kill()
        done = place.retinue("stop", a)
        assert (done.code, done.err) == (0, "")
        assert (endings(place, a), endings(place, b), turn_ends(place, root)) == (["aborted"], ["aborted"], [])
        assert settlements(place, root) == 1
        assert [len(server.of(name)) for name in ("root", "a", "b")] == [2, 2, 1]


@pytest.mark.exploration
def test_an_interrupt_that_nobody_could_read_acts_before_the_resumed_turn_does_anything(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("never", hold="never"), says("went on"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("root")))
        (root,) = ids(place)
        running.kill()
        assert "nobody drives it now" in place.retinue("interrupt", root).out
        done = place.retinue("resume", root, "go on", "--output", "json")
        assert (done.code, done.result["output"]) == (0, "went on")
        server.check()
    assert turn_ends(place, root) == [("aborted", "user"), ("completed", None)]
    place.check()


@pytest.mark.exploration
def test_a_message_that_nobody_could_read_is_read_at_the_next_resume(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("first"), says("then {{re:(salmon)}}"))) as server:
        place = at(server)
        root = place.retinue("run", "ROOT", "--output", "json").result["session_id"]
        sent = place.retinue("send", root, "salmon", "--key", "k")
        assert "nobody drives it now: it is read at the next resume" in sent.out
        assert place.retinue("send", root, "salmon", "--key", "k").out == sent.out
        other = place.retinue("send", root, "trout", "--key", "k")
        assert (other.code, other.err.split(":")[1].strip()) == (2, "ID_CONFLICT")
        assert place.retinue("resume", root, "--output", "json").result["output"] == "then salmon"
        assert place.retinue("send", root, "salmon", "--key", "k").out.startswith("sent before: ")
        server.check()
    place.check()


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.exploration)])
def test_senders_at_once_lose_and_double_nothing(at: At, count: int) -> None:
    replies = [says(f"turn {n}") for n in range(count)]
    with scripted_server(session("root", "ROOT", says("first", hold="go"), *replies)) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("root")))
        (root,) = ids(place)
        with ThreadPoolExecutor(count) as pool:
            sent = list(pool.map(lambda n: place.retinue("send", root, f"word{n}"), range(count)))
        assert [done.code for done in sent] == [0] * count
        server.open("go")
        assert running.done().code == 0
        server.check()
    words = sorted(row.delivery.message.content[0].text for row in rows(place, root))  # type: ignore[union-attr]
    assert words == sorted(["ROOT", *(f"word{n}" for n in range(count))])
    assert {row.state for row in rows(place, root)} == {"claimed"}
    assert len({row.turn for row in rows(place, root)}) == count + 1
    place.check()


@pytest.mark.parametrize("command", ["send", "interrupt", "stop"])
def test_what_does_not_exist_cannot_be_sent_to(at: At, command: str) -> None:
    with scripted_server(session("root", "ROOT", says("done"))) as server:
        place = at(server)
        words = ("text",) if command == "send" else ()
        nothing = place.retinue(command, "session-1", *words)
        assert (nothing.code, nothing.err.split(":")[1].strip()) == (2, "SESSION_NOT_FOUND")
        place.retinue("run", "ROOT")
        unknown = place.retinue(command, "nobody", *words)
        assert (unknown.code, unknown.err.split(":")[1].strip()) == (2, "SESSION_NOT_FOUND")


def test_a_single_run_takes_no_messages(at: At) -> None:
    foreground = {"tool": "subagent", "args": {"description": "a", "prompt": "A: look", "run_in_background": False}}
    with scripted_server(
        session("root", "ROOT", calls(foreground), says("done")), session("a", "A: look", says("seen"))
    ) as server:
        place = at(server)
        place.retinue("run", "ROOT", "--set", "plugins.subagent.background_mode=one-shot")
        _, a = ids(place)
        refused = place.retinue("send", a, "more")
    assert refused.code == 2
    assert "was a single run and takes no messages" in refused.err


def test_a_run_beside_a_live_one_is_refused_by_name(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("first", hold="go"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("root")))
        (root,) = ids(place)
        refused = place.retinue("resume", root)
        assert refused.code == 1
        assert f"is driven by process {running.process.pid} on " in refused.err
        server.open("go")
        assert running.done().code == 0


def test_a_paused_process_that_lost_its_tree_writes_nothing_more_and_says_so(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("first", hold="go"), says("second"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("root")))
        (root,) = ids(place)
        running.signal(signal.SIGSTOP)
        database = sqlite3.connect(place.home / "retinue.db")
        database.execute("UPDATE lease SET expires_at = 0")  # as much time has passed as a lease lasts
        database.commit()
        database.close()
        again = place.retinue("resume", root, "--output", "json")
        assert (again.code, again.result["output"]) == (0, "second")
        log = place.log(root)
        server.open("go")
        running.signal(signal.SIGCONT)
        done = running.done()
    assert done.code == 1
    assert "LEASE_LOST" in done.err
    assert place.log(root) == log
    place.check()
