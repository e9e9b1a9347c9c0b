"""One session's log as readable text: turns, their steps, what was said, called and answered."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.cli.text import brief, duration, one_line, plain, tokens
from retinue.cli.views.state import clock_time, label, state
from retinue.model.content import Reasoning, Text, ToolCall, UserMessage, text_of
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Descriptor,
    EndSeed,
    Event,
    ExternalPermission,
    ExternalPrompt,
    Opaque,
    RequestContext,
    RequestHeaderChange,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
    encode_payload,
)
from retinue.session.store import SessionSummary, StoredSession

__all__ = ["log_lines"]

_WIDTH = 100
_LINES = 12


def log_lines(summary: SessionSummary, stored: StoredSession, *, full: bool, is_owed: bool = False) -> Iterator[str]:
    """The log, line by line. Without `full`, long texts are cut."""
    header = stored.header
    yield f"{header.id}  {state(summary, stored, is_owed=is_owed)}  {clock_time(header.created_at)}"
    for name, value in (
        ("label", brief(label(stored))),
        ("parent", header.parent_session),
        ("folder", plain(header.cwd or "")),
    ):
        if value:
            yield f"  {name}: {value}"
    view = _View(full)
    for event in stored.events:
        yield from view.lines(event)
    for row in stored.pending:
        if row.delivery.is_control:
            if row.delivery.kind == "stop" or summary.open_turn is not None:
                yield f"order to {row.delivery.kind}: it is obeyed at the next resume"
            continue
        mark = "parked" if row.parked else "pending"
        yield f"{mark} ({row.delivery.target}): {brief(text_of(row.delivery.message.content), _WIDTH)}"
    if summary.open_turn is not None:
        yield f"turn {summary.open_turn} is open: it is being worked on, or its process ended"


class _View:
    """Where the reader is: calls are named where their results come."""

    def __init__(self, full: bool) -> None:
        self._full = full
        self._calls: tuple[ToolCall, ...] = ()
        self._started_ms = 0

    def lines(self, event: Event) -> Iterator[str]:
        match event.data:
            case TurnStart(turn=turn):
                self._started_ms = event.time
                yield f"turn {turn}  {clock_time(event.time)}"
            case TurnEnd() as end:
                yield f"  turn {end.turn} ended: {_ending(end)}  {duration((event.time - self._started_ms) / 1000)}"
            case TurnResumed(turn=turn, n=n):
                yield f"  turn {turn} resumed after the end of a process ({n})"
            case StepStart(step=step):
                yield f"  step {step}  (event {event.seq})"
            case UserMessage(content=content, source=source):
                yield from self._text(f"    {source.kind}: ", text_of(content))
            case AssistantReply() as reply:
                yield from self._reply(reply)
            case ApprovalAsked(name=name, rule=rule):
                yield f"    asked: may {brief(name)} run? (rule {brief(rule)})"
            case ApprovalDecided() as decided:
                verb = "allowed" if decided.verb == "allow" else "rejected"
                rest = f", and the rule {brief(decided.grants)} asks no more" if decided.grants else ""
                words = f": {decided.words}" if decided.words else ""
                yield from self._text(f"    {verb} by the {decided.by}{rest}", words)
            case ToolReturned() as result:
                yield from self._result(result)
            case RequestContext() as context:
                yield f"    model: {brief(f'{context.provider}:{context.model}')}"
            case EndSeed():
                yield "end of what was copied from the parent"
            case Descriptor() as made:
                yield f"child of provider {made.provider!r}, {made.mode}"
            case ExternalPrompt(session=session):
                yield f"    given to its session {brief(session)}"
            case ExternalPermission() as asked:
                yield f"    it asked: {brief(asked.title, _WIDTH)}: {asked.verb} (by {asked.by})"
            case StepEnd() | ToolStart() | RequestHeaderChange():
                pass
            case Opaque(type=name):
                yield f"    {brief(name)}"
            case ActivationStart(epoch=epoch):
                yield f"activation {epoch}"
            case ActivationEnd() as end:
                why = f" {one_line(end.detail)}" if end.detail else ""
                yield f"activation {end.epoch} settled: {end.outcome}{why}"
            case other:
                yield f"    {event.type} {brief(encode_payload(other).decode(), _WIDTH)}"

    def _reply(self, reply: AssistantReply) -> Iterator[str]:
        self._calls = reply.message.calls
        used = (
            f" [{tokens(reply.usage.input_tokens)} in, {tokens(reply.usage.output_tokens)} out]" if reply.usage else ""
        )
        marks = "".join(f" ({m})" for m in (reply.finish, "interrupted" if reply.interrupted else None) if m)
        for block in reply.message.content:
            match block:
                case Text(text=text):
                    yield from self._text("    assistant: ", text)
                case Reasoning(text=text):
                    yield from self._text("    reasoning: ", text)
                case ToolCall(name=name, arguments=arguments):
                    yield from self._text(f"    call {brief(name)} ", arguments)
                case _:
                    yield "    assistant: [image]"
        if used or marks:
            yield f"   {used}{marks}"

    def _result(self, result: ToolReturned) -> Iterator[str]:
        name = brief(self._calls[result.index].name) if result.index < len(self._calls) else "?"
        code = f" {brief(result.error.code)}" if result.error is not None else ""
        child = result.meta.get("subagent_id") if result.meta else None
        of = f" {brief(child)}" if isinstance(child, str) else ""
        yield from self._text(f"    result {name}{of}{code}: ", text_of(result.message.content))

    def _text(self, head: str, text: str) -> Iterator[str]:
        lines = plain(text).rstrip("\n").split("\n")
        if not self._full:
            shown = [line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in lines[:_LINES]]
            if len(lines) > _LINES:
                shown.append(f"… {len(lines) - _LINES} more lines")
            lines = shown
        yield head + lines[0]
        for line in lines[1:]:
            yield " " * 6 + line


def _ending(end: TurnEnd) -> str:
    parts = [end.reason]
    if end.cause:
        parts.append(f"by {end.cause}")
    if end.detail:
        parts.append(f"({end.detail})")
    if end.error is not None:
        parts.append(f"{end.error.code}: {end.error.message}")
    if end.parked:
        parts.append(f"{end.parked} parked")
    return one_line(" ".join(parts))
