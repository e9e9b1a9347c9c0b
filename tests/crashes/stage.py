"""What the crash scenarios share: models that answer by the request alone, and waiting for what the logs say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from retinue.compose.app import App
from retinue.model.content import UserMessage, text_of
from retinue.session.events import ActivationEnd, Event, ToolReturned, TurnEnd
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.testing.host import all_sessions
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls

__all__ = [
    "answering",
    "continuations",
    "delegate",
    "has_aborted",
    "has_message",
    "has_notice",
    "has_sent",
    "logged",
    "settled",
    "whenever",
]

Answer = Callable[[SeenRequest], Reply]


def answering(**answers: Answer) -> ScriptedModel:
    """A model for any number of requests: each session is answered by the function with its label."""
    model = ScriptedModel()
    for label, answer in answers.items():
        model.script(label, *[answer] * 100, every=True)
    return model


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


def has_message(words: str) -> Callable[[Event], bool]:
    """A message with these words was read."""
    return lambda event: isinstance(event.data, UserMessage) and text_of(event.data.content) == words


def has_aborted(event: Event) -> bool:
    """A turn was stopped."""
    return isinstance(event.data, TurnEnd) and event.data.reason == "aborted"


def has_sent(event: Event) -> bool:
    """A call has sent a message."""
    return isinstance(event.data, ToolReturned) and "message_id" in (event.data.meta or {})


@asynccontextmanager
async def whenever(app: App, then: Callable[[], object], condition: Callable[[Event], bool]) -> AsyncGenerator[None]:
    """Meanwhile `then` is called as soon as an event that satisfies the condition is in any log, also an old one."""

    def look(_: object, events: Sequence[Event]) -> None:
        if any(condition(event) for event in events):
            then()

    store = app.host.sessions.store
    with app.host.sessions.observe(look, durable=True):
        for summary in await all_sessions(store):
            look(None, (await store.read(summary.header.id)).events)
        yield


async def logged(app: App, condition: Callable[[Event], bool]) -> None:
    """An event that satisfies the condition is in a log, durably."""
    seen = anyio.Event()
    async with whenever(app, seen.set, condition):
        await seen.wait()


async def settled(app: App) -> bool:
    """A child has settled, whether or not its parent knows."""
    store = app.host.sessions.store
    logs = [(await store.read(summary.header.id)).events for summary in await all_sessions(store)]
    return any(isinstance(event.data, ActivationEnd) for events in logs for event in events)
