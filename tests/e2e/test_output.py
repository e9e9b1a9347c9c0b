"""What is written where: stdout for the answer or the objects, stderr for people."""

import os
from collections.abc import Callable

from retinue.session.events import event_object
from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


def test_text_is_the_answer_alone_and_people_read_the_rest_on_stderr(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD"), text="I ask a child."), says("The answer\nin two lines")),
        session("child", "CHILD", says("fine")),
    ) as server:
        done = at(server).retinue("run", "ROOT", "and", "more")
        assert server.of("root")[0].messages[-1]["content"] == "ROOT and more"

    assert (done.code, done.out) == (0, "The answer\nin two lines\n")
    child = next(id for id in at(server).stored() if id != done.session)
    assert done.err.splitlines() == [
        f"session {done.session}",
        f"started child CHILD ({child})",
        f"completed child CHILD ({child})",
    ]


def test_every_event_of_the_tree_is_written_once_it_is_durable_and_the_result_is_last(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD")), says("done")), session("child", "CHILD", says("fine"))
    ) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", "--output", "jsonl")

    assert done.code == 0
    objects = done.objects
    assert [o["type"] for o in objects] == ["event"] * (len(objects) - 1) + ["result"]
    assert all(isinstance(o["time"], float) and o["session_id"] for o in objects)
    for id, (events, _) in place.stored().items():
        written = [o["event"] for o in objects[:-1] if o["session_id"] == id]
        stored = [{key: value for key, value in event_object(e).items() if key != "time"} for e in events]
        assert written == stored
    assert {"outcome", "output", "usage", "agents", "abandoned", "error"} <= done.result.keys()
    assert done.result["usage"] == {
        "input_tokens": 30,
        "output_tokens": 15,
        "cached_tokens": 0,
        "cost_usd": None,
        "requests": 3,
    }


def test_a_task_may_come_from_stdin(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("read"))) as server:
        place = at(server)
        read, write = os.pipe()
        os.write(write, b"ROOT: a task\nwith lines \xff\n")
        os.close(write)
        with os.fdopen(read) as stdin:
            done = place.retinue("run", "-", stdin=stdin)
        assert server.of("root")[0].messages[-1]["content"] == "ROOT: a task\nwith lines \ufffd"
    assert done.code == 0


def test_a_reader_that_leaves_ends_the_run_and_keeps_its_work(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("x" * 400, hold="unread", hold_after="never"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "jsonl", "--stream")
        assert running.process.stdout is not None
        running.process.stdout.readline()
        server.wait_requests(root=1)
        running.process.stdout.close()
        server.open("unread")
        server.wait(lambda s: s.of("root")[0].outcome == "aborted")
        assert running.process.wait(15) == 1
        assert running.process.stderr is not None
        err = running.process.stderr.read()
        running.process.stderr.close()

    assert "retinue: OUTPUT_CLOSED: " in err
    assert "Traceback" not in err
    assert "go on with: retinue resume" in err
    place.check(quiescent=False)


def test_a_configuration_that_is_wrong_has_a_result_too(place: Place) -> None:
    done = place.retinue("run", "hello", "--output", "json")
    assert (done.code, done.result["session_id"], done.result["outcome"]) == (2, None, "error")
    assert done.result["error"]["code"] == "MODEL_NOT_CONFIGURED"
    assert not place.home.exists()
