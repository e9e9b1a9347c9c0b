"""What the crash scenarios share: models that answer by the request alone, and waiting for what the logs say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from retinue.compose.app import App
from retinue.session.events import Event
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.testing.host import all_sessions
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text

__all__ = ["Answer", "answering", "continuations", "delegate", "has_notice", "logged", "noted", "whenever"]

Answer = Callable[[SeenRequest], Reply]


def answering(**answers: Answer) -> ScriptedModel:
    """A model for any number of requests: each session is answered by the function with its label."""
    model = ScriptedModel()
    for label, answer in answers.items():
        model.script(label, *[answer] * 100, every=True)
    return model


def noted(seen: SeenRequest) -> Reply:
    """It has nothing to do."""
    return text("noted")


def delegate(*labels: str, waits: bool = False) -> Reply:
    """The model starts children with these labels side by side."""
    return calls(
        *(call("subagent", description=label, prompt=f"Do {label}.", run_in_background=not waits) for label in labels)
    )


def has_notice(seen: SeenRequest, label: str) -> bool:
    """The child has settled, once at least, and the model knows it."""
    return any(said.startswith("[notice]") and f"({label})" in said for said in seen.users)


def continuations(app: App) -> Continuations:
    return app.host.require(CONTINUATIONS, needed_by="a scenario")


@asynccontextmanager
async def whenever(app: App, then: Callable[[], object], *conditions: Callable[[Event], bool]) -> AsyncGenerator[None]:
    """Meanwhile `then` is called as soon as an event that satisfies a condition is in any log, also an old one."""

    def look(_: object, events: list[Event] | tuple[Event, ...]) -> None:
        if any(condition(event) for event in events for condition in conditions):
            then()

    with app.host.sessions.observe(lambda session, events: look(session, list(events)), durable=True):
        await look_back(app, look)
        yield


async def look_back(app: App, look: Callable[[object, list[Event]], None]) -> None:
    store = app.host.sessions.store
    for summary in await all_sessions(store):
        look(None, (await store.read(summary.header.id)).events)


async def logged(app: App, condition: Callable[[Event], bool]) -> None:
    """An event that satisfies the condition is in a log, durably."""
    seen = anyio.Event()
    async with whenever(app, seen.set, condition):
        await seen.wait()
