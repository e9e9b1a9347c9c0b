"""The installed command as tests use it: a home, a folder and an environment of its own, and its output by form."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from retinue.base.clock import SystemClock
from retinue.base.ids import SessionId
from retinue.session.events import Event
from retinue.session.invariants import tree_violations, violations
from retinue.session.rows import StoredRow
from retinue.session.store import SessionRecord
from retinue.store.sqlite import SqliteStore

__all__ = ["KEY", "Done", "Place", "Running"]

KEY = "sk-secret-0123456789abcdef"
"""What the tests' key looks like; it must never turn up anywhere."""

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The one result object of `json` or `jsonl`; it must be the last line."""
        objects = self.objects
        assert [o["type"] for o in objects].count("result") == 1
        assert objects[-1]["type"] == "result"
        return objects[-1]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def session(self) -> str:
        """The session's id as stderr announces it."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("session ")]
        return line.removeprefix("session ")


@dataclass
class Running:
    """A command that is at work."""

    process: subprocess.Popen[str]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a power failure would, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.done()

    def line(self) -> str:
        """The next line of stderr, waited for."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def done(self) -> Done:
        """Its end, waited for."""
        out, err = self.process.communicate(timeout=_TIMEOUT_S)
        return Done(self.process.returncode, out, err)


@dataclass
class Place:
    """Where commands of one test run."""

    root: Path
    url: str | None = None
    """The server that `run` and `resume` ask."""
    variables: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def clear(self) -> None:
        """Nothing of a test that failed half-way goes on."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def folder(self) -> Path:
        folder = self.root / "folder"
        folder.mkdir(exist_ok=True)
        return folder

    def environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name]
            for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "COVERAGE_PROCESS_START")
            if name in os.environ
        }
        return {
            **kept,
            "HOME": str(self.root / "user"),
            "RETINUE_HOME": str(self.home),
            "PYTHONWARNINGS": "error",
            **self.variables,
        }

    def start(self, *arguments: str, **popen: Any) -> Running:
        """`retinue ARGUMENTS`, at work in the folder. `run` and `resume` get the server's model."""
        asked = list(arguments)
        if self.url is not None and arguments[0] in ("run", "resume"):
            asked[1:1] = ["--model", "openai-compatible:scripted", "--base-url", self.url]
            asked[1:1] = ["--set", "retry.first_delay_s=0.01"]
        process = subprocess.Popen(
            [sys.executable, "-m", "retinue", *asked],
            cwd=self.folder,
            env=self.environment(),
            stdin=popen.pop("stdin", subprocess.DEVNULL),
            stdout=popen.pop("stdout", subprocess.PIPE),
            stderr=popen.pop("stderr", subprocess.PIPE),
            text=True,
            **popen,
        )
        self.started.append(process)
        return Running(process)

    def retinue(self, *arguments: str, **popen: Any) -> Done:
        """`retinue ARGUMENTS`, with its end."""
        return self.start(*arguments, **popen).done()

    # What is stored.

    def log(self, session: str) -> list[Event]:
        """The events of one session, read beside whoever writes."""
        return self.stored()[SessionId(session)][0]

    def stored(self) -> dict[SessionId, tuple[list[Event], list[StoredRow]]]:
        """Every session of the home by id: its events and all its rows. Parents come before their children."""
        return {record.header.id: (list(record.events), list(record.rows)) for record in self.records()}

    def records(self) -> list[SessionRecord]:
        """The same with headers."""
        return anyio.run(_read_all, self.home / "retinue.db")

    def check(self, *, quiescent: bool = True) -> None:
        """Fail if a log of the home breaks a rule of all logs, or a parent and a child one of what is between them."""
        records = self.records()
        found = [
            (record.header.id, violation)
            for record in records
            for violation in violations(record.events, record.rows, quiescent=quiescent)
        ]
        found += tree_violations(records)
        assert [f"{id}: {violation}" for id, violation in found] == []


async def _read_all(path: Path) -> list[SessionRecord]:
    store = SqliteStore.open(path, SystemClock(), read_only=True)
    found: list[SessionRecord] = []
    try:
        todo: Sequence[SessionId] = [summary.header.id for summary in await store.roots()]
        while todo:
            id, *rest = todo
            stored = await store.read(id)
            found.append(SessionRecord(header=stored.header, events=stored.events, rows=await store.read_rows(id)))
            todo = [*rest, *(child.header.id for child in await store.children(id))]
    finally:
        await store.aclose()
    return found
