"""The scripted model of the demo: a client like any other, whose replies come from a few fixed rules.

It invents nothing: what it says is computed from the prompt and the tool results that it is sent, as a real model's
conversation would hold them. It pauses a little so that people can follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import anyio

from retinue.base.json import JSONObject, encode
from retinue.cli.demo.roles import Heard, Reply, play
from retinue.model.chunks import CallDelta, CallStart, Chunk, Finish, Sink, TextDelta, Used
from retinue.model.client import Body, ModelRequest
from retinue.model.content import AssistantMessage, Message, ToolMessage, Usage, UserMessage, text_of

__all__ = ["DemoModel"]

_WORD_CHARS = 24


class _Transcript:
    """The conversation, as it is."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def extend(self, messages: Sequence[Message]) -> None:
        self.messages.extend(messages)


class DemoModel:
    """Answers by rule. `pause_s` is how long it thinks before each reply."""

    provider = "scripted"

    def __init__(self, *, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s

    def context_window(self, model: str) -> int | None:
        """Unbounded."""
        return None

    def transcript(self) -> _Transcript:
        """A new empty conversation."""
        return _Transcript()

    def encode(self, request: ModelRequest) -> Body:
        """What a server would be sent, so that its size says something."""
        return (encode(cast(_Transcript, request.transcript).messages),)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """The reply of the rule for this conversation, in pieces."""
        reply = play(_heard(cast(_Transcript, request.transcript).messages))
        await anyio.sleep(self._pause_s)
        for chunk in _chunks(_in_foreground(reply, request)):
            sink(chunk)
            await anyio.sleep(self._pause_s / 40)
        said = len(reply.text) + sum(len(encode(arguments)) for _, arguments in reply.calls)
        sink(Used(Usage(input_tokens=sum(map(len, body)) // 4, output_tokens=said // 4 + 1, requests=1)))
        sink(Finish("tool-calls" if reply.calls else "stop"))

    async def aclose(self) -> None:
        """Nothing is open."""


def _heard(messages: Sequence[Message]) -> Heard:
    """The prompt, and the results of each step so far."""
    prompt = next((text_of(m.content) for m in messages if isinstance(m, UserMessage)), "")
    steps: list[list[str]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            steps.append([])
        elif isinstance(message, ToolMessage) and steps:
            steps[-1].append(text_of(message.content))
    return Heard(prompt, tuple(tuple(step) for step in steps))


def _in_foreground(reply: Reply, request: ModelRequest) -> Reply:
    """Delegations wait for their answer, where the tool leaves the choice to the model."""
    choosing = {
        spec.name
        for spec in request.tools
        if isinstance(properties := spec.parameters.get("properties"), dict) and "run_in_background" in properties
    }
    calls: list[tuple[str, JSONObject]] = [
        (name, {**arguments, "run_in_background": False} if name in choosing and name == "subagent" else arguments)
        for name, arguments in reply.calls
    ]
    return Reply(reply.text, tuple(calls))


def _chunks(reply: Reply) -> Iterator[Chunk]:
    for start in range(0, len(reply.text), _WORD_CHARS):
        yield TextDelta(reply.text[start : start + _WORD_CHARS])
    for index, (name, arguments) in enumerate(reply.calls):
        yield CallStart(index, f"call_{index}", name)
        yield CallDelta(index, encode(arguments).decode())
