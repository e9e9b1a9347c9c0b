"""A model server whose answers follow from the conversation alone: a process may die and be followed at any moment.

The newest user message with `TASK name` says who asks. In each of its steps that agent makes the calls of its `Task`,
then it says that it waits, until it was told the answers of all its children; then it says `ANSWER name;` and theirs.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal

from tests.support.model_server import Exchange, delta, event, model_server

__all__ = ["Asked", "Bash", "Child", "Report", "Task", "TaskServer", "answers_in", "task_in", "task_server"]

_TASK = re.compile(r"TASK ([\w.]+)")
_ANSWER = re.compile(r"ANSWER ([\w.]+);")
_LATEST_MS = 50


@dataclass(frozen=True)
class Bash:
    """A command that adds the line `mark` to a file."""

    mark: str

    def call(self) -> tuple[str, dict[str, Any]]:
        return "bash", {"command": f"echo {self.mark} >> marks", "description": "leave a mark"}


@dataclass(frozen=True)
class Report:
    """A report of the child to its parent."""

    words: str

    def call(self) -> tuple[str, dict[str, Any]]:
        return "report", {"output": self.words}


@dataclass(frozen=True)
class Child:
    """A delegation."""

    task: Task
    is_background: bool = True
    tool: str = "subagent"

    def call(self) -> tuple[str, dict[str, Any]]:
        prompt = f"TASK {self.task.name}"
        return self.tool, {
            "description": f"child {self.task.name}",
            "prompt": prompt,
            "run_in_background": self.is_background,
        }


@dataclass(frozen=True)
class Task:
    """What an agent does: the calls of each of its messages. Children of `steps` are those it waits for."""

    name: str
    steps: Sequence[Sequence[Bash | Report | Child]] = ()

    def children(self) -> list[Task]:
        return [call.task for step in self.steps for call in step if isinstance(call, Child)]

    def all(self) -> Iterator[Task]:
        """The task and everybody's below it."""
        yield self
        for child in self.children():
            yield from child.all()


@dataclass(frozen=True)
class Asked:
    """One request: of whom, and how many messages of the model it held since the task."""

    name: str
    step: int


@dataclass
class TaskServer:
    """Handed out by `task_server`; its methods are called from the test's thread."""

    tasks: dict[str, Task]
    asked: list[Asked] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Requests that no agent should make."""
    port: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        """What `--base-url` takes."""
        return f"http://127.0.0.1:{self.port}/v1"

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` came to hold in time; it is looked at whenever a request came."""
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    async def answer(self, exchange: Exchange) -> None:
        """Whatever was asked."""
        messages = exchange.json["messages"]
        asked, step = _who(messages), 0
        task = self.tasks.get(asked[1]) if asked is not None else None
        if asked is None or task is None:
            self.problems.append(f"nobody's task: {messages[-1]}")
            await exchange.whole({"error": {"message": "whose task is this?"}}, 400)
            return
        since = messages[asked[0] :]
        step = sum(message["role"] == "assistant" for message in since)
        with self._changed:
            self.asked.append(Asked(task.name, step))
            self._changed.notify_all()
        await anyio.sleep(zlib.crc32(f"{task.name} {len(self.asked)}".encode()) % _LATEST_MS / 1000)
        await self._reply(exchange, task, since, step)

    async def _reply(self, exchange: Exchange, task: Task, since: list[dict[str, Any]], step: int) -> None:
        await exchange.head()
        worked = sum(1 for message in since if message["role"] == "assistant" and message.get("tool_calls"))
        if worked < len(task.steps):
            for index, made in enumerate(task.steps[worked]):
                name, arguments = made.call()
                function = {"name": name, "arguments": json.dumps(arguments)}
                call = {"index": index, "id": f"call_{step}_{index}", "type": "function", "function": function}
                await exchange.send(event(delta(tool_calls=[call])))
            await exchange.send(event(delta("tool_calls")))
        else:
            told = [name for m in since if m["role"] != "assistant" for name in answers_in(_text(m))]
            owed = {below.name for child in task.children() for below in child.all()} - set(told)
            words = f"waiting for {len(owed)}" if owed else " ".join(f"ANSWER {name};" for name in (task.name, *told))
            await exchange.send(event(delta(content=words)))
            await exchange.send(event(delta("stop")))
        await exchange.send(event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}))
        await exchange.send(event("[DONE]"))
        await exchange.end()


def answers_in(text: str) -> list[str]:
    """Whose answers a text holds, as often as it does."""
    return _ANSWER.findall(text)


def task_in(text: str) -> str | None:
    """The name of the task that a text gives."""
    found = _TASK.search(text)
    return None if found is None else found[1]


def _who(messages: list[dict[str, Any]]) -> tuple[int, str] | None:
    """Where the newest task stands, and whose it is."""
    for index in range(len(messages) - 1, -1, -1):
        name = task_in(_text(messages[index])) if messages[index]["role"] == "user" else None
        if name is not None:
            return index, name
    return None


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


@contextmanager
def task_server(root: Task) -> Generator[TaskServer]:
    """A listening server in a thread of its own; leaving the block ends it."""
    server = TaskServer({task.name: task for task in root.all()})
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(model_server(server.answer)) as running,
    ):
        server.port = running.port
        yield server
