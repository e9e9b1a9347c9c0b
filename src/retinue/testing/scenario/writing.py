"""What a model streamed as a script that people can read. Keys and paths of this machine do not get into it.

An id that the model took from its conversation is taken from the live request again, so that the script holds when ids
change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from retinue.base.ids import SessionId
from retinue.base.json import JSON, decode, encode
from retinue.compose.build import secrets_of
from retinue.model.chunks import CallDelta, CallStart, Chunk, Finish, ReasoningDelta, TextDelta, Used
from retinue.model.content import UserMessage, text_of
from retinue.session.events import AssistantReply, Event, encode_payload
from retinue.testing.scenario.form import CallForm, ReplyForm, ScriptForm
from retinue.testing.scenario.stage import Stage
from retinue.testing.scenario.taken import TakenSession

__all__ = ["reply_form", "scripts_of", "write_scripts"]

_AGENT = re.compile(r"\bagent-[0-9a-f]{24}\b")
_LIVE_AGENT = r"{{fromRequest:\b(agent-[0-9a-f]{24})\b}}"


def reply_form(chunks: Sequence[Chunk]) -> ReplyForm:
    """The reply that streams these chunks, in short if that says all of it."""
    merged = _merged(chunks)
    short = _short(merged)
    return short if short is not None else ReplyForm(chunks=tuple(merged))


def _merged(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The same with neighbouring pieces of one text joined."""
    merged: list[Chunk] = []
    for chunk in chunks:
        match merged[-1] if merged else None, chunk:
            case TextDelta(text=before), TextDelta(text=more):
                merged[-1] = TextDelta(before + more)
            case ReasoningDelta(text=before, signature=None), ReasoningDelta(text=more):
                merged[-1] = ReasoningDelta(before + more, chunk.signature)
            case CallDelta(index=at, text=before), CallDelta(index=index, text=more) if at == index:
                merged[-1] = CallDelta(at, before + more)
            case Used(), Used():
                merged[-1] = chunk
            case _:
                merged.append(chunk)
    return merged


def _short(chunks: Sequence[Chunk]) -> ReplyForm | None:
    """Thought, text and calls, each once and in this order; None for whatever is not so."""
    form, rest = ReplyForm(), list(chunks)
    if rest and isinstance(rest[0], ReasoningDelta) and rest[0].signature is None:
        form, rest = replace(form, thought=rest[0].text), rest[1:]
    if rest and isinstance(rest[0], TextDelta):
        form, rest = replace(form, text=rest[0].text), rest[1:]
    while rest and isinstance(start := rest[0], CallStart):
        pieces = [c.text for c in rest if isinstance(c, CallDelta) and c.index == start.index]
        form = replace(form, calls=(*form.calls, _call(start, "".join(pieces))))
        rest = [c for c in rest[1:] if not (isinstance(c, CallDelta) and c.index == start.index)]
    used = [chunk.usage for chunk in rest if isinstance(chunk, Used)]
    ends = [chunk.reason for chunk in rest if isinstance(chunk, Finish)]
    if len(used) != 1 or len(ends) != 1 or len(rest) != 2:
        return None
    usual = "tool-calls" if form.calls else "stop"
    if ends[0] not in (usual, "length", "content-filter"):
        return None
    end = ends[0] if ends[0] in ("length", "content-filter") else None
    return replace(form, usage=used[0], end=end)


def _call(start: CallStart, arguments: str) -> CallForm:
    try:
        value = decode(arguments)
    except msgspec.DecodeError:
        value = None
    if isinstance(value, dict):
        return CallForm(tool=start.name, args=value, id=start.id or None)
    return CallForm(tool=start.name, raw=arguments, id=start.id or None)


def scripts_of(
    stage: Stage, sessions: Sequence[TakenSession], replies: Mapping[SessionId, Sequence[ReplyForm]]
) -> tuple[ScriptForm, ...]:
    """The scripts of the sessions: each by its label, or by its prompt if others have the same label or it has none."""
    labels = [session.label for session in sessions]
    scripts: list[ScriptForm] = []
    for session in sessions:
        said = replies.get(session.header.id)
        if not said:
            continue
        scrub = _Scrub(stage, session)
        forms = tuple(scrub.reply(number, form) for number, form in enumerate(said))
        if session.label and labels.count(session.label) == 1:
            scripts.append(ScriptForm(label=session.label, replies=forms))
        else:
            scripts.append(ScriptForm(prompt=scrub.prompt(), replies=forms))
    return tuple(scripts)


def write_scripts(file: Path, scripts: Sequence[ScriptForm]) -> None:
    """The scripts are in the file."""
    file.write_bytes(msgspec.yaml.encode(msgspec.to_builtins(scripts)))


class _Scrub:
    """Takes out of the replies of one session what only this machine and this run know."""

    def __init__(self, stage: Stage, session: TakenSession) -> None:
        self._stands_for = {path: "{{" + name + "}}" for name, path in stage.places.items()}
        self._stands_for |= dict.fromkeys(secrets_of(stage.environ), "<secret>")
        self._own = session.own
        self._replied = [n for n, event in enumerate(session.own) if isinstance(event.data, AssistantReply)]

    def clean(self, text: str) -> str:
        """The text without keys and paths."""
        for found in sorted(self._stands_for, key=len, reverse=True):
            text = text.replace(found, self._stands_for[found])
        return text

    def prompt(self) -> str:
        """A pattern for what the session was told first, up to whatever only this machine knows."""
        told = [text_of(event.data.content) for event in self._own if isinstance(event.data, UserMessage)]
        same = self.clean(told[0] if told else "").partition("{{")[0].partition("<secret>")[0]
        return rf"\A{re.escape(same)}"

    def reply(self, number: int, form: ReplyForm) -> ReplyForm:
        """The `number`-th reply of the session, from 0."""
        newest = _newest_agent(self._own[: self._replied[number]] if number < len(self._replied) else self._own)

        def text(value: str) -> str:
            return self.clean(value.replace(newest, _LIVE_AGENT) if newest else value)

        return msgspec.json.decode(encode(_mapped(decode(encode(form)), text)), type=ReplyForm)


def _newest_agent(events: Sequence[Event]) -> str:
    """The id of an agent that was named last in these events; empty if none was."""
    for event in reversed(events):
        found = _AGENT.findall(encode_payload(event.data).decode())
        if found:
            return found[-1]
    return ""


def _mapped(value: JSON, change: Callable[[str], str]) -> JSON:
    """The value with every text in it changed; keys stay."""
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _mapped(inner, change) for key, inner in value.items()}
        case list():
            return [_mapped(inner, change) for inner in value]
        case _:
            return value
