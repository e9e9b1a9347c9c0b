"""Makes the requests of a stored log again and compares them with what was sent.

Pure: a log and an encoder go in. History, header and body come from the code that makes requests of live agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.agent.conversation import Conversation
from retinue.agent.headers import request_again
from retinue.errors import BadInput, ConfigError, CorruptSession
from retinue.model.client import Body
from retinue.model.encoding import Encoder, Encoding, SentBody
from retinue.session.events import AssistantReply, Event, RequestContext, RequestHeaderChange, StepEnd, StepStart
from retinue.session.folds import History

__all__ = ["Encoders", "LoggedRequest", "Rebuilt", "rebuilt"]

Encoders: TypeAlias = Callable[[str, Encoding], Encoder | None]
"""The encoder of a provider that had an encoding; None for a name that nobody knows. Raises: BadInput."""

Fate: TypeAlias = Literal["answered", "interrupted", "unanswered", "open"]


class LoggedRequest(Struct, frozen=True, kw_only=True):
    """What a log says of one request."""

    turn: int
    step: int
    first: int
    """Seq of the step's start."""
    known_at: int
    """Seq of the event that says what became of it; of a place after the log if none does."""
    fate: Fate
    """`interrupted`: an abort cut the reply off. `open`: the step has neither a reply nor an end."""
    sent: SentBody | None
    header: RequestHeaderChange | None
    header_seq: int
    context: RequestContext | None
    messages: int
    """How many it carried, without the system prompt."""


class Rebuilt(Struct, frozen=True, kw_only=True):
    """A request that was made again. Without a `reason` it is byte for byte what was sent."""

    request: LoggedRequest
    verdict: Literal["identical", "different", "unknown"]
    reason: str = ""
    """Why it differs, as far as can be known, or why that is unknown."""
    body: Body | None = None
    made: SentBody | None = None
    """The record of `body`."""


def rebuilt(events: Sequence[Event], seq: int, encoders: Encoders) -> Rebuilt:
    """The request of the step that event `seq` belongs to, made again.

    Raises: BadInput for an event outside every step, CorruptSession for a header that no request can have had.
    """
    first = _step_of(events, seq)
    maker = _Maker(encoders)
    for request, history in _requests(events):
        if request.first == first:
            found = maker.again(request, history)
            if found.verdict != "different":
                return found
            return Rebuilt(
                request=request,
                verdict="different",
                reason=f"{found.reason}; {_where(events, request, encoders)}",
                body=found.body,
                made=found.made,
            )
    raise AssertionError(f"step at event {first} was found and is not there")


def _step_of(events: Sequence[Event], seq: int) -> int:
    """Seq of the start of the step around an event. Raises: BadInput, which names steps that are there."""
    starts: list[int] = []
    is_open = False
    for event in events:
        if type(event.data) is StepStart:
            starts.append(event.seq)
            is_open = True
        if event.seq == seq and is_open:
            return starts[-1]
        if type(event.data) is StepEnd:
            is_open = False
    if not 0 <= seq < len(events):
        raise BadInput(f"there is no event {seq}: the log has events 0 to {len(events) - 1}")
    before = [start for start in starts if start < seq][-1:]
    after = [start for start in starts if start > seq][:1]
    near = " and ".join(str(start) for start in before + after)
    hint = f"the nearest steps start at event {near}" if near else "the log has no step"
    raise BadInput(f"event {seq} ({events[seq].type}) belongs to no step, so to no request; {hint}")


def _requests(events: Sequence[Event]) -> Iterator[tuple[LoggedRequest, History]]:
    """Every request of the log, each with the history as it was sent; the same history goes on growing."""
    history = History()
    step: Event | None = None
    header: RequestHeaderChange | None = None
    header_seq = -1
    context: RequestContext | None = None

    def request(start: Event, at: int, fate: Fate, sent: SentBody | None) -> tuple[LoggedRequest, History]:
        assert isinstance(start.data, StepStart)
        made = LoggedRequest(
            turn=start.data.turn,
            step=start.data.step,
            first=start.seq,
            known_at=at,
            fate=fate,
            sent=sent,
            header=header,
            header_seq=header_seq,
            context=context,
            messages=len(history.messages),
        )
        return made, history

    for event in events:
        match event.data:
            case StepStart():
                step = event
            case RequestHeaderChange() as change:
                header, header_seq = change, event.seq
            case RequestContext() as change:
                context = change
            case AssistantReply(sent=sent, interrupted=interrupted) if step is not None:
                yield request(step, event.seq, "interrupted" if interrupted else "answered", sent)
                step = None
            case StepEnd(sent=sent) if step is not None:
                yield request(step, event.seq, "unanswered", sent)
                step = None
            case _:
                pass
        history.apply(event)
    if step is not None:
        yield request(step, len(events), "open", None)


class _Maker:
    """Makes the requests of one log again, in their order: what one shares with the next is encoded once."""

    def __init__(self, encoders: Encoders) -> None:
        self._encoders = encoders
        self._conversation = Conversation()
        self._encoder: Encoder | None = None
        self._key: tuple[str, Encoding] | None = None

    def again(self, request: LoggedRequest, history: History) -> Rebuilt:
        """The request, made again and compared. Raises: CorruptSession."""
        context, header, sent = request.context, request.header, request.sent
        if context is None or header is None:
            return _unknown(request, "no header of a request was logged: it failed before one was made")
        if context.encoder is None:
            return _unknown(
                request,
                f"the client of provider {context.provider!r} named no encoder (a client of your own, or a log of "
                "an older version), so nobody can say which bytes it sent",
            )
        encoder = self._find(context.provider, context.encoder)
        if encoder is None:
            return _unknown(request, f"this version has no encoder {context.encoder.name!r}")
        try:
            made = request_again(header.header, self._conversation.transcript(history, encoder))
            body = encoder.encode(made)
        except ConfigError as error:
            return _unknown(request, f"it was refused before it was sent: {error}")
        now = encoder.sent(made, body)
        if now == sent:
            return Rebuilt(request=request, verdict="identical", body=body, made=now)
        if sent is None:
            return _unknown(request, _NOT_SENT[request.fate], body, now)
        reason = f"{sent.size} bytes ({sent.digest}) were sent, and {now.size} bytes ({now.digest}) come out"
        theirs, ours = context.encoder.version, encoder.encoding(context.model).version
        if theirs != ours:
            reason += f"; version {theirs} of the encoder made it, and this is version {ours}, which writes otherwise"
        return Rebuilt(request=request, verdict="different", reason=reason, body=body, made=now)

    def _find(self, provider: str, encoding: Encoding) -> Encoder | None:
        if self._key != (provider, encoding):
            self._key = (provider, encoding)
            self._encoder = self._encoders(provider, encoding)
        return self._encoder


_NOT_SENT: dict[Fate, str] = {
    "answered": "no request left: a layer of `model_request` answered, or sent it elsewhere",
    "interrupted": "no request left: a layer of `model_request` answered, or sent it elsewhere",
    "unanswered": "no request is on record: the step ended before one left, or its process died before the reply",
    "open": "its step has no reply and no end: it is at work now, or its process ended; resumed, it is asked anew",
}


def _unknown(request: LoggedRequest, reason: str, body: Body | None = None, made: SentBody | None = None) -> Rebuilt:
    return Rebuilt(request=request, verdict="unknown", reason=reason, body=body, made=made)


def _where(events: Sequence[Event], different: LoggedRequest, encoders: Encoders) -> str:
    """Which events hold what is different: those between the newest identical request and the first that is not."""
    maker = _Maker(encoders)
    same: LoggedRequest | None = None
    for request, history in _requests(events):
        try:
            verdict = maker.again(request, history).verdict
        except CorruptSession:
            continue
        if verdict == "identical":
            same = request
        elif verdict == "different":
            break
        if request.first == different.first:
            break
    else:
        request = different
    at = "it" if request.first == different.first else f"the request of event {request.first}"
    if same is None:
        return f"{at} is the first that differs, and no request before it is identical"
    return f"{at} is the first that differs: look at events {same.first} to {request.known_at - 1}"
