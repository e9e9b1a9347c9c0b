"""What the demo's scripted agents do: for each kind of prompt, the next reply as a function of the results so far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote

from retinue.base.json import JSONObject

__all__ = ["LIMIT", "TASK", "Heard", "Reply", "play"]

TASK = "Get to know this project: how much code is it, what is left to do, and what went wrong this week?"

LIMIT = 500
"""Files that a search shows; the copy that the demo works on has no more."""
_MOST_LOGS = 20


@dataclass(frozen=True, slots=True)
class Heard:
    """A conversation so far: the prompt, and the results of each finished step."""

    prompt: str
    steps: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says next, and the tools it calls with it."""

    text: str = ""
    calls: tuple[tuple[str, JSONObject], ...] = ()


def play(heard: Heard) -> Reply:
    """The next reply. A prompt that no rule knows is answered with just that."""
    for pattern, role in _ROLES:
        match = re.search(pattern, heard.prompt)
        if match is not None:
            return role(heard, match)
    return Reply("I am a scripted model and know only the prompts of the demonstration.")


def _delegate(description: str, prompt: str) -> tuple[str, JSONObject]:
    return "subagent", {"description": description, "prompt": prompt}


# The root.


def _root(heard: Heard, _: re.Match[str]) -> Reply:
    if not heard.steps:
        return Reply(
            "Three questions that do not depend on each other: I hand each to an agent of its own.",
            (
                _delegate("measure the code", "Measure the code of this project: Python files, functions, lines."),
                _delegate("collect open work", "Collect the open work: every TODO note and who it is for."),
                _delegate("look through the logs", "Look through the logs in `logs`: how many errors, and where."),
            ),
        )
    return Reply("\n".join(f"- {_first_line(answer)}" for answer in heard.steps[0]))


# Its children.


def _code(heard: Heard, _: re.Match[str]) -> Reply:
    match heard.steps:
        case ():
            return Reply(
                "",
                (
                    ("glob", {"pattern": "**/*.py", "limit": LIMIT}),
                    ("grep", {"pattern": r"^\s*(async )?def \w+", "glob": "*.py", "output": "count", "limit": LIMIT}),
                ),
            )
        case ((files, _),) if not _found(files):
            return Reply("There is no Python code here.")
        case ((files, _),):
            names = " ".join(quote(name) for name in _found(files))
            return Reply("", (("bash", {"command": f"wc -l -- {names}", "description": "count lines"}),))
        case ((files, functions), (counted,), *_):
            lines = {name: int(count) for count, name in re.findall(r"^ *(\d+) (.+)$", counted, re.MULTILINE)}
            names = _found(files)
            total = sum(lines.get(name, 0) for name in names)
            longest = max(names, key=lambda name: (lines.get(name, 0), name))
            defined = sum(int(line.rpartition(":")[2]) for line in _found(functions))
            size = f"{_count(len(names), 'Python file')} with {_count(defined, 'function')} in {_count(total, 'line')}"
            return Reply(f"Code: {size}; the longest is {longest} ({lines.get(longest, 0)}).")
        case _:
            return Reply("I could not measure the code.")


def _work(heard: Heard, _: re.Match[str]) -> Reply:
    if not heard.steps:
        return Reply("", (("grep", {"pattern": r"TODO\(\w+\)", "limit": LIMIT}),))
    people = Counter(re.findall(r"TODO\((\w+)\)", "\n".join(heard.steps[0])))
    if not people:
        return Reply("Open work: none is noted.")
    each = ", ".join(f"{count} for {name}" for name, count in sorted(people.items()))
    return Reply(f"Open work: {_count(people.total(), 'TODO note')}, {each}.")


def _logs(heard: Heard, match: re.Match[str]) -> Reply:
    if not heard.steps:
        return Reply("", (("glob", {"pattern": f"{match.group(1)}/*.log", "limit": _MOST_LOGS}),))
    files = _found(heard.steps[0][0]) if heard.steps[0] else []
    if not files:
        return Reply("Errors: there are no logs.")
    if len(heard.steps) == 1:
        return Reply(
            "One agent for each day.",
            tuple(_delegate(f"read {name}", f"Read the log {name} and count its errors by device.") for name in files),
        )
    answers = [_first_line(answer) for answer in heard.steps[1]]
    counts = {m.group(1): int(m.group(2)) for a in answers if (m := re.match(r"(.+?): (\d+) errors?", a))}
    devices = Counter[str]()
    for answer in answers:
        devices.update({name: int(count) for name, count in re.findall(r"(\S+) ×(\d+)", answer)})
    total = sum(counts.values())
    if not total:
        return Reply(f"Errors: none in {_count(len(files), 'log')}.")
    worst = max(counts, key=lambda name: (counts[name], name))
    device, most = devices.most_common(1)[0]
    return Reply(
        f"Errors: {total} in {_count(len(files), 'log')}; the worst is {worst} with {counts[worst]}, "
        f"and {device} had most ({most})."
    )


# Their children.


def _log(heard: Heard, match: re.Match[str]) -> Reply:
    if not heard.steps:
        return Reply("", (("read", {"path": match.group(1)}),))
    more = re.search(r"use offset (\d+) to go on\]$", heard.steps[-1][0])
    if more is not None:
        return Reply("", (("read", {"path": match.group(1), "offset": int(more.group(1))}),))
    read = "\n".join(result for step in heard.steps for result in step)
    devices = Counter(re.findall(r" ERROR +(\S+)", read))
    each = ", ".join(f"{name} ×{count}" for name, count in devices.most_common())
    return Reply(f"{match.group(1)}: {_count(devices.total(), 'error')}{f', {each}' if each else ''}.")


def _found(result: str) -> list[str]:
    """The lines of a search result, without its notes."""
    return [line for line in result.splitlines() if line and not line.startswith(("(", "["))]


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


_ROLES: tuple[tuple[str, Callable[[Heard, re.Match[str]], Reply]], ...] = (
    (r"^Get to know this project", _root),
    (r"^Measure the code", _code),
    (r"^Collect the open work", _work),
    (r"^Look through the logs in `(\w+)`", _logs),
    (r"^Read the log (\S+) and", _log),
)
