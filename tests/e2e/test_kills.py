"""`retinue run` with 20 children, killed at moments that a seed chooses: nothing is lost, and nothing happens twice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from retinue.agent.loop import RESUME_LIMIT
from retinue.model.content import text_of
from retinue.session.events import AssistantReply, Payload, ToolReturned, UserMessage
from retinue.session.folds import Turns
from retinue.session.store import SessionRecord
from tests.support.command import Done, Place, Running
from tests.support.task_server import Bash, Child, Report, Task, TaskServer, answers_in, task_in, task_server

IS_LONG = bool(os.environ.get("RETINUE_LONG"))
SEEDS = range(30 if IS_LONG else 3)
KILLS = 10 if IS_LONG else 4

pytestmark = [pytest.mark.exploration, pytest.mark.timeout(300)]


def worker(name: str, steps: int) -> Task:
    """Leaves a mark in each step, then answers."""
    return Task(name, [[Bash(f"{name}.{step}")] for step in range(steps)])


def reporter(name: str) -> Task:
    return Task(name, [[Report(f"half of {name}")], [Bash(f"{name}.1")]])


def lead(name: str) -> Task:
    """Has children of its own, one of whom it waits for in the call."""
    inner = [Child(worker(f"{name}.a", 1)), Child(worker(f"{name}.b", 0)), Child(worker(f"{name}.c", 1), False)]
    return Task(name, [inner, [Bash(f"{name}.1")]])


def background(*tasks: Task) -> list[Child]:
    return [Child(task) for task in tasks]


def foreground(*tasks: Task, tool: str = "subagent") -> list[Child]:
    return [Child(task, False, tool) for task in tasks]


ROOT = Task(
    "root",
    [
        [*background(*(worker(f"early{n}", n % 3) for n in range(6))), Bash("root.0")],
        [*foreground(worker("waited0", 1), worker("waited1", 2)), *background(lead("lead0"), lead("lead1"))],
        [*background(*(reporter(f"reporter{n}") for n in range(4))), Bash("root.2")],
        foreground(worker("copy0", 1), worker("copy1", 0), tool="subagent_fork"),
        [*foreground(lead("lead2"), lead("lead3")), *background(worker("late0", 0), worker("late1", 2))],
        *([Bash(f"root.{step}")] for step in range(5, 25)),
    ],
)
EVERYBODY = {task.name: task for task in ROOT.all()}


def test_the_task_has_20_children_and_some_below_them() -> None:
    assert (len(ROOT.children()), len(EVERYBODY)) == (20, 33)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_that_is_killed_once_goes_on_to_the_same_end(place: Place, seed: int) -> None:
    with task_server(ROOT) as server:
        lives = Lives(replace(place, url=server.url), server, random.Random(seed))
        lives.killed(most_requests=100)
        lives.to_the_end()


def test_a_run_that_is_killed_again_and_again_goes_on_to_the_same_end(place: Place) -> None:
    with task_server(ROOT) as server:
        lives = Lives(replace(place, url=server.url), server, random.Random(7))
        for _ in range(KILLS):
            lives.killed(most_requests=6)
        assert lives.kills == KILLS
        lives.to_the_end()


class Lives:
    """One run over several processes."""

    def __init__(self, place: Place, server: TaskServer, rng: random.Random) -> None:
        self.place = place
        self.server = server
        self.rng = rng
        self.root: str | None = None
        self.kills = 0
        self.repeats = 0
        """How many requests may at most be made again: those that were open when the process died."""
        self.logged: Counter[str] = Counter()
        """How many replies each agent's log held when the last process died."""

    def killed(self, *, most_requests: int) -> None:
        """A process works on it and is killed after some requests, if it is still there."""
        seen = len(self.server.asked)
        running = self.start()
        wanted = seen + self.rng.randrange(most_requests)
        while not self.server.wait(lambda: len(self.server.asked) >= wanted, 0.1):
            if running.process.poll() is not None:
                break
        time.sleep(self.rng.random() * 0.03)
        while running.process.poll() is None and any(is_tired(record) for record in self.place.records()):
            time.sleep(0.01)
        if running.process.poll() is None:
            self.kills += 1
        running.kill()
        self.check_requests(seen)
        stored = self.place.records()
        self.logged = Counter({name_of(record): len(replies(record)) for record in stored})
        self.repeats += sum(asked.step >= self.logged[asked.name] for asked in self.server.asked[seen:])
        self.place.check(quiescent=False)

    def start(self) -> Running:
        if self.root is not None:
            return self.place.start("resume", self.root)
        running = self.place.start("run", "TASK root")
        self.root = running.line().removeprefix("session ")
        return running

    def to_the_end(self) -> None:
        """One more process finishes it; then all of it is judged."""
        seen = len(self.server.asked)
        done = self.start().done()
        self.check_requests(seen)
        self.check_answer(done)
        self.check_marks()
        self.check_logs()
        asked = len(self.server.asked)
        assert self.place.retinue("resume", str(self.root)).out == done.out
        assert len(self.server.asked) == asked
        assert self.server.problems == []

    def check_requests(self, since: int) -> None:
        """What a log had before the process began was not asked for again."""
        again = [asked for asked in self.server.asked[since:] if asked.step < self.logged[asked.name]]
        assert again == []

    def check_answer(self, done: Done) -> None:
        assert done.code == 0, done.err
        assert Counter(answers_in(done.out)) == Counter(EVERYBODY.keys()), done.err

    def check_marks(self) -> None:
        """A command ran once if its log says that it worked, at most once if that is unknown, and else never."""
        path = self.place.folder / "marks"
        marks = Counter(path.read_text().split() if path.exists() else ())
        allowed = {None: (1,), "TOOL_OUTCOME_UNKNOWN": (0, 1), "TOOL_NOT_STARTED": (0,)}
        for record in self.place.records():
            results = [event.data for event in record.events if isinstance(event.data, ToolReturned)]
            by_call = {(result.turn, result.step, result.index): result for result in results}
            for reply in replies(record):
                for index, call in enumerate(reply.message.calls):
                    if call.name == "bash":
                        error = by_call[reply.turn, reply.step, index].error
                        mark = str(call.arguments).split("echo ")[1].split(" ")[0]
                        assert marks.pop(mark, 0) in allowed[error.code if error else None], (mark, error)
        assert marks == {}

    def check_logs(self) -> None:
        self.place.check()
        records = self.place.records()
        assert sorted(name_of(record) for record in records) == sorted(EVERYBODY)
        root = next(record for record in records if record.header.id == self.root)
        heard = [text for event in root.events for text in heard_in(event.data)]
        told = Counter(name for text in heard for name in answers_in(text))
        assert told == Counter(name for name in EVERYBODY if name != "root")
        reports = Counter(f"half of reporter{n}" in text for n in range(4) for text in heard)
        assert reports[True] == 4
        for name, task in EVERYBODY.items():
            asked = [asked.step for asked in self.server.asked if asked.name == name]
            if not task.children():
                assert set(asked) == set(range(len(task.steps) + 1)), name
        total = sum(len(replies(record)) for record in records)
        assert total <= len(self.server.asked) <= total + self.repeats


def name_of(record: SessionRecord) -> str:
    """Whose session it is."""
    texts = [text_of(row.delivery.message.content) for row in record.rows]
    return next(name for text in texts if (name := task_in(text)) is not None)


def replies(record: SessionRecord) -> list[AssistantReply]:
    """The messages of the model in its own part of the log."""
    own = record.events[record.header.seed_length or 0 :]
    return [event.data for event in own if isinstance(event.data, AssistantReply)]


def heard_in(data: Payload) -> Sequence[str]:
    """What an event told its agent."""
    if isinstance(data, UserMessage):
        return [text_of(data.content)]
    return [text_of(data.message.content)] if isinstance(data, ToolReturned) else []


def is_tired(record: SessionRecord) -> bool:
    """Its turn was resumed so often without ending a step that it is given up next time, which is no loss of a kill."""
    turns = Turns(record.header.id)
    for event in record.events:
        turns.apply(event)
    turn = turns.open
    if turn is None or turn.resumed < RESUME_LIMIT - 1:
        return False
    step = turn.step
    missing = {step.calls[index].name for index in step.missing} if step is not None else set[str]()
    return not missing & {"subagent", "subagent_fork"}
