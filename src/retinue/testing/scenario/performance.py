"""One performance of a scenario, from an empty folder to the expected files that it would have."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from retinue.model.client import ModelClient
from retinue.session.events import ToolReturned
from retinue.testing.clock import FakeClock
from retinue.testing.host import errors_of
from retinue.testing.model import ScriptedModel
from retinue.testing.scenario.folder import STDOUT, Folder, log_name
from retinue.testing.scenario.front_end import FRONT_ENDS
from retinue.testing.scenario.logs import render_log
from retinue.testing.scenario.names import Names
from retinue.testing.scenario.pins import Headers, Pin, class_pin
from retinue.testing.scenario.replies import add_scripts
from retinue.testing.scenario.stage import Stage
from retinue.testing.scenario.steps import PATIENCE_S, Performer
from retinue.testing.scenario.taken import TakenSession, take

__all__ = ["Performance", "Player", "Scripted", "perform"]


class Player(Protocol):
    """Who answers the model requests of a performance."""

    def client(self) -> ModelClient:
        """The client of the next life of the process."""
        ...

    def wait_request(self, count: int, session_id: str) -> Awaitable[object]:
        """That session has made so many requests."""
        ...

    def faults(self) -> list[str]:
        """What was asked for and should not have been, or the other way round."""
        ...


class Scripted:
    """Answers by the scripts of the scenario, and keeps accounts."""

    def __init__(self, stage: Stage) -> None:
        """Raises: ConfigError if the scripts do not hold."""
        self._model = ScriptedModel(provider=stage.provider)
        add_scripts(self._model, stage.folder.scripts(), stage.gates, stage.places)

    def client(self) -> ModelClient:
        """See Player."""
        return self._model

    def wait_request(self, count: int, session_id: str) -> Awaitable[object]:
        """See Player."""
        return self._model.wait_requests(count, session_id)

    def faults(self) -> list[str]:
        """See Player."""
        return self._model.faults()


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """What a performance came to. Texts have stable names for ids and paths."""

    problems: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """The expected files as this performance would have them; none if it has problems."""
    sessions: Sequence[TakenSession] = ()
    pin: Pin | None = None
    """Of the scenario's class."""


async def perform(
    folder: Folder,
    make: Callable[[Stage], Player] = Scripted,
    *,
    patience_s: float = PATIENCE_S,
) -> Performance:
    """The scenario was performed and its temporary folder is gone.

    Raises: ConfigError, and what opening the composition raises.
    """
    with TemporaryDirectory(prefix="retinue-scenario-") as place:
        stage = Stage(folder, Path(place), FakeClock(), {"HOME": place})
        player, front_end = make(stage), FRONT_ENDS[folder.form.front_end]()
        performer = Performer(stage, front_end, player.client, player.wait_request, patience_s=patience_s)
        with errors_of(logging.getLogger("retinue")) as errors:
            await performer.perform()
        sessions, broken = await take(stage.home, stage.clock)
        names = Names([session.header.id for session in sessions], stage.places)
        problems = [*performer.problems, *player.faults(), *_unknown_tools(sessions)]
        problems += [f"an error was logged: {error}" for error in errors]
        problems += [] if performer.problems else broken  # of what was cut short, no log is whole
        if problems:
            return Performance(problems=[names(problem) for problem in problems], sessions=sessions)
        return _came_to(folder, sessions, front_end.transcript, names)


def _came_to(folder: Folder, sessions: Sequence[TakenSession], transcript: list[str], names: Names) -> Performance:
    pin = class_pin(folder, sessions, names)
    if isinstance(pin, str):
        return Performance(problems=[pin], sessions=sessions)
    headers = Headers(folder, pin, sessions, names)
    problems = list(headers.problems())
    if problems:
        return Performance(problems=problems, sessions=sessions, pin=pin)
    files = {
        log_name(session.number): render_log(session, names, lambda header, n=session.number: headers.token(n, header))
        for session in sessions
    }
    files[STDOUT] = names("".join(f"{line}\n" for line in transcript))
    return Performance(problems=[], files=files | headers.files(), sessions=sessions, pin=pin)


def _unknown_tools(sessions: Sequence[TakenSession]) -> Iterator[str]:
    for session in sessions:
        for event in session.own:
            data = event.data
            if isinstance(data, ToolReturned) and data.error is not None and data.error.code == "UNKNOWN_TOOL":
                yield f"{session.who}, event {event.seq + 1} tool/result: UNKNOWN_TOOL: {data.error.message}"
