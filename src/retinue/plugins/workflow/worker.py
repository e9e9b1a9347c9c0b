"""The program of a script's process: it takes one script, runs it, and speaks with its parent in lines of JSON.

It imports nothing but the standard library and `language`; its parent hands it the text of both, so that it needs no
file. Script and hooks share one thread: what waits is a coroutine, and when all wait, the next answer is read.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

from retinue.plugins.workflow.language import SCRIPT, Refused, compile_script, scope

__all__ = ["main"]


def main() -> None:
    """The first line is the order, each later one an answer. The process ends with the script."""
    order = _receive()
    _limit(order["memory_bytes"], order["cpu_s"])
    hooks = _Hooks(order["items"])
    try:
        code = compile_script(order["script"])
        script = scope(code, {**hooks.all(), "args": order["args"], "meta": order["meta"]})
        sys.addaudithook(_deny)
        _send({"op": "ready"})
        value = _run(script())
        if hooks.idle:
            raise RuntimeError(f"{hooks.idle[0].said} was never awaited; write `await` before it")
        said = _result(value)
    except Exception as error:
        said = json.dumps({"op": "failed", "line": _line(error), "message": _message(error)})
    _write(said)
    os._exit(0)


def _result(value: Any) -> str:
    try:
        return json.dumps({"op": "done", "value": value}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"what a workflow returns must be JSON: {error}") from None


# What the process may use.


def _limit(memory_bytes: int, cpu_s: int) -> None:
    """From here on no file, socket or process can be made, and memory and time are bounded."""
    wanted = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NOFILE: 3,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, bound in wanted.items():
        with suppress(OSError, ValueError):  # a system that has no such limit, or a lower one already
            resource.setrlimit(kind, (bound, bound))


def _deny(event: str, _: object) -> None:
    """Whatever the interpreter would do outside of itself fails, however it was reached."""
    if event != "object.__getattr__":
        raise RuntimeError(f"{event} is not available in a workflow")


# Speaking with the parent.


def _receive() -> dict[str, Any]:
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)
    return json.loads(line)


def _send(message: dict[str, Any]) -> None:
    _write(json.dumps(message, allow_nan=False))


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("ascii") + b"\n")
    sys.stdout.buffer.flush()


# Running the script.


class _Branch:
    """A coroutine on its way, and the join that waits for it."""

    __slots__ = ("_coroutine", "_join", "error", "value")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], join: _Join | None = None) -> None:
        self._coroutine = coroutine
        self._join = join
        self.value: Any = None
        self.error: Exception | None = None

    def step(self, value: Any, error: Exception | None) -> Any:
        """What it asks for next; None once it is over."""
        try:
            return self._coroutine.send(value) if error is None else self._coroutine.throw(error)
        except StopIteration as end:
            self.value = end.value
        except Exception as failure:
            self.error = failure
        return None

    def leave(self) -> list[_Next]:
        """It is over: who goes on now."""
        return [] if self._join is None else self._join.ended(self)


_Next: TypeAlias = "tuple[_Branch, Exception | None, Any]"


class _Ask:
    """A question to the parent."""

    __slots__ = ("message",)

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message


class _Join:
    """Branches that run side by side. Whoever waits for them goes on when all are over, or with the first error."""

    __slots__ = ("_left", "_waiter", "branches")

    def __init__(self, coroutines: Iterable[Coroutine[Any, Any, Any]]) -> None:
        self.branches = [_Branch(one, self) for one in coroutines]
        self._left = len(self.branches)
        self._waiter: _Branch | None = None

    def begin(self, waiter: _Branch) -> list[_Next]:
        """`waiter` waits: who runs now."""
        self._waiter = waiter
        return [(one, None, None) for one in self.branches] or [(waiter, None, None)]

    def ended(self, branch: _Branch) -> list[_Next]:
        """One of them is over: who goes on now."""
        self._left -= 1
        waiter = self._waiter
        if waiter is None or (branch.error is None and self._left):
            return []
        self._waiter = None
        return [(waiter, branch.error, None)]


def _ask(message: dict[str, Any]) -> Generator[_Ask, Any, Any]:
    return (yield _Ask(message))


def _all(join: _Join) -> Generator[_Join, Any, Any]:
    yield join
    return [branch.value for branch in join.branches]


class _Hooks:
    """What a script can call."""

    def __init__(self, items: int) -> None:
        self._items = items
        self._count = 0
        self.idle: list[_Waiting] = []
        """What was made and not awaited."""

    def all(self) -> dict[str, Callable[..., Any]]:
        """By the name that a script uses."""

        def agent(prompt: str, *, label: str, schema: Any = None, agent: str | None = None) -> _Waiting:
            given: dict[str, object] = {"prompt": prompt, "label": label}
            for name, text in given.items():
                if not isinstance(text, str) or not text.strip():
                    raise TypeError(f"agent: {name} must be text")
            self._count += 1
            message = {"id": self._count, "prompt": prompt, "label": label, "schema": schema, "agent": agent}
            return self._waiting(_ask({"op": "agent", **message}), f"agent {label!r}")

        def parallel(branches: Iterable[Any]) -> _Waiting:
            chosen = self._bounded(branches, "parallel")
            return self._waiting(_all(_Join([_value(branch) for branch in chosen])), "parallel")

        def pipeline(items: Iterable[Any], *stages: Callable[[Any], Any]) -> _Waiting:
            chosen = self._bounded(items, "pipeline")
            return self._waiting(_all(_Join([_flow(item, stages) for item in chosen])), "pipeline")

        def phase(name: str) -> None:
            _send({"op": "phase", "name": str(name)})

        def log(text: str) -> None:
            _send({"op": "log", "text": str(text)})

        def say(*values: Any, **_: Any) -> None:
            log(" ".join([str(value) for value in values]))

        return {"agent": agent, "parallel": parallel, "pipeline": pipeline, "phase": phase, "log": log, "print": say}

    def _bounded(self, items: Iterable[Any], name: str) -> list[Any]:
        chosen = list(items)
        if len(chosen) > self._items:
            raise ValueError(f"{name}: at most {self._items} items in one call, not {len(chosen)}")
        return chosen

    def _waiting(self, inner: Generator[Any, Any, Any], said: str) -> _Waiting:
        made = _Waiting(inner, said, self.idle)
        self.idle.append(made)
        return made


class _Waiting:
    """What a hook gives: it begins when it is awaited."""

    __slots__ = ("_idle", "_inner", "said")

    def __init__(self, inner: Generator[Any, Any, Any], said: str, idle: list[_Waiting]) -> None:
        self._inner = inner
        self._idle = idle
        self.said = said

    def __await__(self) -> Generator[Any, Any, Any]:
        if self not in self._idle:
            raise RuntimeError(f"{self.said} was awaited before")
        self._idle.remove(self)
        return self._inner


async def _value(branch: Any) -> Any:
    made = branch() if callable(branch) else branch
    return await made if inspect.isawaitable(made) else made


async def _flow(item: Any, stages: tuple[Callable[[Any], Any], ...]) -> Any:
    for stage in stages:
        if item is None:
            return None
        made = stage(item)
        item = await made if inspect.isawaitable(made) else made
    return item


def _run(script: Coroutine[Any, Any, Any]) -> Any:
    """What the script returns. Raises: what it raises."""
    root = _Branch(script)
    ready: deque[tuple[_Branch, Exception | None, Any]] = deque([(root, None, None)])
    asking: dict[int, _Branch] = {}
    seen = 0
    while True:
        while ready:
            branch, error, value = ready.popleft()
            match branch.step(value, error):
                case None if branch is root:
                    if root.error is not None:
                        raise root.error
                    return root.value
                case None:
                    ready.extend(branch.leave())
                case _Ask(message=message):
                    asking[message["id"]] = branch
                    _send(message)
                case _Join() as join:
                    ready.extend(join.begin(branch))
                case other:
                    raise TypeError(f"a {type(other).__name__} cannot be awaited here")
        _send({"op": "wait", "seen": seen})
        answer = _receive()
        seen += 1
        ready.append((asking.pop(answer["id"]), None, answer["value"]))


# How it failed.


def _line(error: Exception) -> int | None:
    """Where in the script."""
    if isinstance(error, Refused):
        return error.line
    if isinstance(error, SyntaxError):
        return error.lineno
    line: int | None = None
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == SCRIPT:
            line = at.tb_lineno
        at = at.tb_next
    return line


def _message(error: Exception) -> str:
    match error:
        case Refused():
            return str(error)
        case SyntaxError(msg=said):
            return f"SyntaxError: {said}"
        case MemoryError():
            return "MemoryError: the script used all the memory that it may use"
        case _:
            return f"{type(error).__name__}: {error}"[:2_000]
