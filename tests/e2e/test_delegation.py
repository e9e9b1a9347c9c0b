"""A root and its children, driven through the installed command."""

from collections.abc import Callable

from retinue.session.events import ToolReturned
from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


def test_children_of_one_message_work_at_the_same_time(at: At) -> None:
    names = ["ONE", "TWO", "THREE", "FOUR"]
    with scripted_server(
        session("root", "ROOT", calls(*(delegate(name) for name in names)), says("all: {{re:answer-(\\w+)}}")),
        *(session(name, name, says(f"answer-{name}", hold="go")) for name in names),
    ) as server:
        running = at(server).start("run", "ROOT", "--output", "json")
        server.wait_requests(**dict.fromkeys(names, 1))
        assert [server.of(name)[0].outcome for name in names] == ["pending"] * 4
        server.open("go")
        done = running.done()

        assert (done.code, done.result["outcome"], done.result["output"]) == (0, "completed", "all: FOUR")
        assert [agent["outcome"] for agent in done.result["agents"]] == ["completed"] * 4
        assert done.result["usage"]["requests"] == 6
        server.check()
    at(server).check()


def test_a_child_that_fails_harms_no_sibling(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("GOOD"), delegate("BAD"), delegate("LATE")), says("mixed")),
        session("good", "GOOD", says("fine")),
        session("bad", "BAD", {"fail": 400, "message": "no such thing", "open": ["bad-is-over"]}),
        session("late", "LATE", says("fine too", hold="bad-is-over")),
    ) as server:
        done = at(server).retinue("run", "ROOT", "--output", "json")
        server.check()

    assert (done.code, done.result["output"], done.result["error"]) == (0, "mixed", None)
    ended = {agent["label"]: agent["outcome"] for agent in done.result["agents"]}
    assert ended == {"child GOOD": "completed", "child BAD": "error", "child LATE": "completed"}
    place = at(server)
    results = [e.data for e in place.log(done.result["session_id"]) if isinstance(e.data, ToolReturned)]
    errors = {r.index: r.error.code if r.error else None for r in results}
    assert errors == {0: None, 1: "SUBAGENT_ERROR", 2: None}
    place.check()


def test_children_may_have_children(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("MIDDLE")), says("root heard {{re:leaf-(\\d+)}}")),
        session("middle", "MIDDLE", calls(delegate("LEAF")), says("middle heard {{re:(leaf-\\d+)}}")),
        session("leaf", "LEAF", says("leaf-7")),
    ) as server:
        done = at(server).retinue("run", "ROOT", "--output", "json")
        server.check()

    root, middle = done.result["session_id"], done.result["agents"][0]["id"]
    assert [agent["parent_id"] for agent in done.result["agents"]] == [root, middle]
    assert done.result["output"] == "root heard 7"


def test_ids_of_calls_that_repeat_in_every_turn_are_told_apart(at: At) -> None:
    once = delegate("A", id="call_0"), delegate("B", id="call_0")
    with scripted_server(
        session("root", "ROOT", calls(*once), calls(*once), says("a {{re:a-(\\d)}}, b {{re:b-(\\d)}}")),
        session("a", "A: do", says("a-1"), says("a-2")),
        session("b", "B: do", says("b-1"), says("b-2")),
    ) as server:
        done = at(server).retinue("run", "ROOT", "--output", "json")
        server.check()

        assert done.result["output"] == "a 2, b 2"
        assert len({agent["id"] for agent in done.result["agents"]}) == 4
        last = [message for message in server.of("root")[-1].messages if message["role"] == "tool"]
        assert [message["content"] for message in last] == ["a-1", "b-1", "a-2", "b-2"]
    at(server).check()


def test_tools_work_on_the_files_of_the_folder(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD")), says("it says {{re:secret is (\\w+)}}")),
        session(
            "child",
            "CHILD",
            calls({"tool": "read", "args": {"path": "note.txt"}}, {"tool": "bash", "args": {"command": "ls | wc -l"}}),
            says("the secret is {{re:code=(\\w+)}}"),
        ),
    ) as server:
        place = at(server)
        (place.folder / "note.txt").write_text("code=heron\n")
        done = place.retinue("run", "ROOT")
        server.check()

        assert (done.code, done.out) == (0, "it says heron\n")
        assert "1" in server.of("child")[1].messages[-1]["content"]
