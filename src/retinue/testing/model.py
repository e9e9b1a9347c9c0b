"""A model that answers from scripts, with strict accounts: an unexpected request and an unused reply are both failures.

A script belongs to one session, found by its id, its label or its prompt, so siblings that run at the same time cannot
take each other's replies. Nothing here depends on time; gates decide when a held reply goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import anyio
import anyio.lowlevel

from retinue.base.ids import SessionId
from retinue.base.json import JSONObject, encode
from retinue.errors import ModelError
from retinue.model.chunks import CallDelta, CallStart, Finish, ReasoningDelta, Sink, TextDelta, Used
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.content import Message
from retinue.testing.keys import Key, Script, prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Act, Call, Cut, Emit, Fail, Hold, Reply, Say, Scripted, live_text, live_value

__all__ = ["ScriptedModel", "prompt"]

_PIECES = 3
"""Chunks that a text is streamed in, if it is long enough."""


class ScriptedTranscript:
    """The messages as they are, and each of them encoded once."""

    __slots__ = ("encoded", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.encoded: list[bytes] = []

    def extend(self, messages: Sequence[Message]) -> None:
        """See Transcript."""
        self.messages.extend(messages)
        self.encoded.extend(encode(message) for message in messages)


@dataclass(slots=True)
class _Talk:
    """What the model remembers of one session."""

    requests: list[SeenRequest] = field(default_factory=list[SeenRequest])
    script: Script | None = None
    calls: int = 0


class ScriptedModel:
    """A ModelClient for tests. `check` at the end, unless `scripted_host` does it."""

    def __init__(
        self,
        *replies: Scripted,
        provider: str = "scripted",
        context_window: int | None = None,
        pace: Callable[[SeenRequest], Awaitable[None]] | None = None,
    ) -> None:
        """`replies` are the script of the first session that no other script fits.

        `pace` is awaited before the first chunk of a reply and after each; by default the loop goes round once.
        """
        self._provider = provider
        self._pace = pace or _at_once
        self._context_window = context_window
        self._scripts: list[Script] = []
        self._talks: dict[SessionId, _Talk] = {}
        self._requests: list[SeenRequest] = []
        self._faults: list[str] = []
        self._changed = anyio.Event()
        self.is_closed = False
        if replies:
            self._scripts.append(Script(None, list(replies)))

    # Scripting

    def script(self, key: Key, *replies: Scripted, every: bool = False) -> Script:
        """`replies` are for the session that `key` finds, one per request.

        Scripts with equal keys serve one session each, in the order in which they were added. With `every` each
        session that fits gets all of `replies` for itself, and none has to come.
        """
        script = Script(key, list(replies), every)
        self._scripts.append(script)
        return script

    def faults(self) -> list[str]:
        """Requests that were not expected or still run, and replies that were not used and are not optional."""
        running = (seen for seen in self._requests if seen.state == "running")
        still = [f"request {seen.number} of {seen.who} is still running" for seen in running]
        return [*self._faults, *self._unused(), *still]

    def check(self) -> None:
        """Every request was expected and every reply that is not optional was used. Raises: AssertionError."""
        faults = self.faults()
        if faults:
            raise AssertionError("the model's scripts were not followed:\n- " + "\n- ".join(faults))

    def _unused(self) -> Iterator[str]:
        for script in self._scripts:
            if script.every:
                continue
            for index, reply in enumerate(script.replies[script.used :], script.used + 1):
                if not (isinstance(reply, Reply) and reply.is_optional):
                    yield f"reply {index} of {script.name} was never asked for: {_shown(reply)}"

    # Looking

    def requests(self, who: str | None = None) -> tuple[SeenRequest, ...]:
        """All requests in the order of their arrival, or those of one label or session id."""
        return tuple(r for r in self._requests if who is None or who in (r.label, r.session_id))

    async def wait_requests(self, count: int, who: str | None = None) -> SeenRequest:
        """`count` requests have arrived (from one label or session id); the answer is the last of them."""
        while len(found := self.requests(who)) < count:
            await self._changed.wait()
        return found[count - 1]

    # ModelClient

    @property
    def provider(self) -> str:
        """See ModelClient."""
        return self._provider

    def context_window(self, model: str) -> int | None:
        """See ModelClient."""
        return self._context_window

    def transcript(self) -> Transcript:
        """See ModelClient."""
        return ScriptedTranscript()

    def encode(self, request: ModelRequest) -> Body:
        """The whole request as canonical JSON: equal requests, and no others, have equal bytes."""
        assert isinstance(request.transcript, ScriptedTranscript)
        head: JSONObject = {
            "max_tokens": request.max_tokens,
            "model": request.model,
            "options": request.options,
            "system": request.system,
            "tools": [
                {"name": t.name, "description": t.description, "parameters": t.parameters} for t in request.tools
            ],
        }
        return (b'{"messages":[' + b",".join(request.transcript.encoded) + b"]," + encode(head)[1:],)

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """See ModelClient. An unexpected request fails with kind `bad-request`."""
        seen = self._see(request, body)
        try:
            reply = self._reply(seen)
            await self._pace(seen)
            for act in reply.acts:
                await self._perform(act, seen, sink)
            self._end(reply, sink)
            seen.state = "answered"
        except ModelError:
            if seen.state == "running":
                seen.state = "failed"
            raise
        except BaseException:
            seen.state = "aborted"
            raise

    async def aclose(self) -> None:
        """See ModelClient."""
        self.is_closed = True

    # Playing

    def _see(self, request: ModelRequest, body: Body) -> SeenRequest:
        assert isinstance(request.transcript, ScriptedTranscript)
        talk = self._talks.setdefault(request.session_id, _Talk())
        before = talk.requests[-1] if talk.requests else None
        is_repeated = before is not None and before.state == "failed" and before.body == body
        seen = SeenRequest(
            session_id=request.session_id,
            label=request.label,
            number=len(talk.requests) + 1,
            attempt=before.attempt + 1 if before is not None and is_repeated else 1,
            model=request.model,
            system=request.system,
            tools=request.tools,
            max_tokens=request.max_tokens,
            options=request.options,
            body=body,
            log=request.transcript.messages,
            length=len(request.transcript.messages),
        )
        talk.requests.append(seen)
        self._requests.append(seen)
        self._changed.set()
        self._changed = anyio.Event()
        return seen

    def _reply(self, seen: SeenRequest) -> Reply:
        talk = self._talks[seen.session_id]
        if talk.script is None:
            talk.script = self._bind(seen)
        script = talk.script
        if script is None or script.used == len(script.replies):
            which = "no script fits it" if script is None else f"{script.name} has only {script.used} replies"
            raise self._unexpected(seen, f"was not expected, since {which}; it begins after {seen.new!r}")
        reply = script.replies[script.used]
        script.used += 1
        return reply if isinstance(reply, Reply) else self._live(reply, seen)

    def _bind(self, seen: SeenRequest) -> Script | None:
        for script in sorted(self._scripts, key=lambda script: script.rank):
            if script.session_id is None and script.matches(seen):
                if script.every:
                    return Script(script.key, list(script.replies), every=True, session_id=seen.session_id)
                script.session_id = seen.session_id
                return script
        return None

    def _live(self, value: Callable[[SeenRequest], Reply], seen: SeenRequest) -> Reply:
        try:
            return value(seen)
        except Exception as error:
            raise self._unexpected(seen, f"did not suit its script: {error}") from error

    def _unexpected(self, seen: SeenRequest, why: str) -> ModelError:
        seen.state = "unexpected"
        message = f"request {seen.number} of {seen.who} {why}"
        self._faults.append(message)
        return ModelError("bad-request", message)

    async def _perform(self, act: Act, seen: SeenRequest, sink: Sink) -> None:
        match act:
            case Hold(gate=gate):
                await gate.wait()
            case Emit():
                sink(act.chunk)
                await anyio.lowlevel.checkpoint()
            case Say():
                for piece in _pieces(self._value(seen, lambda: live_text(act.text, seen))):
                    sink(ReasoningDelta(piece) if act.is_reasoning else TextDelta(piece))
                    await self._pace(seen)
            case Call():
                talk = self._talks[seen.session_id]
                index, talk.calls = talk.calls, talk.calls + 1
                sink(CallStart(index, act.id or f"call-{index + 1}", act.name))
                for piece in _pieces(self._value(seen, lambda: _arguments(act, seen))):
                    sink(CallDelta(index, piece))
                await self._pace(seen)
            case _:
                assert_never(act)

    def _value(self, seen: SeenRequest, make: Callable[[], str]) -> str:
        try:
            return make()
        except Exception as error:
            raise self._unexpected(seen, f"did not suit its script: {error}") from error

    def _end(self, reply: Reply, sink: Sink) -> None:
        match reply.end:
            case Fail():
                raise reply.end.error()
            case Cut():
                raise ModelError("transport", "the stream ended without a finish reason")
            case reason:
                if reply.usage is not None:
                    sink(Used(reply.usage))
                sink(Finish(reason))


async def _at_once(_: SeenRequest) -> None:
    await anyio.lowlevel.checkpoint()


def _arguments(call: Call, seen: SeenRequest) -> str:
    if isinstance(call.arguments, str) or callable(call.arguments):
        return live_text(call.arguments, seen)
    return encode(live_value(call.arguments, seen)).decode()


def _pieces(text: str) -> Iterator[str]:
    size = max(1, -(-len(text) // _PIECES))
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _said(act: Say) -> str:
    return repr(act.text) if isinstance(act.text, str) else "a text made from the request"


def _shown(reply: Scripted) -> str:
    if not isinstance(reply, Reply):
        return "a function of the request"
    said = [_said(a) if isinstance(a, Say) else f"{a.name}(…)" for a in reply.acts if isinstance(a, Say | Call)]
    end = reply.end.kind if isinstance(reply.end, Fail) else "cut" if isinstance(reply.end, Cut) else reply.end
    return f"{', '.join(said) or 'nothing'} ({end})"
