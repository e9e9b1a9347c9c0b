"""Replies of a scenario as the scripted model plays them: values from the live request, gates, failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from retinue.base.json import JSON
from retinue.model.chunks import Chunk, Finish, Used
from retinue.testing.gate import Gate
from retinue.testing.keys import Key, prompt
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.scenario.form import ROOT, CallForm, ReplyForm, ScriptForm
from retinue.testing.scenario.witness import ROOT_ID
from retinue.testing.script import (
    DEFAULT_USAGE,
    Act,
    Call,
    Cut,
    Emit,
    End,
    Fail,
    Hold,
    Live,
    LiveText,
    Reply,
    Say,
)

__all__ = ["Gates", "add_scripts", "reply"]

_TAKEN = re.compile(r"\{\{fromRequest:(.+?)\}\}(?!\})", re.DOTALL)
_PLACE = re.compile(r"\{\{(work|home|temp)\}\}")


class Gates:
    """The gates of a scenario, by name; each exists from its first mention on."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, name: str) -> Gate:
        return self._gates.setdefault(name, Gate(name))


def add_scripts(model: ScriptedModel, scripts: tuple[ScriptForm, ...], gates: Gates, places: Mapping[str, str]) -> None:
    """The model answers by these scripts. `places` is what `{{work}}` and `{{home}}` stand for."""
    for script in scripts:
        key: Key = prompt(script.prompt) if script.prompt is not None else script.label or ""
        if key == ROOT:
            key = ROOT_ID
        model.script(key, *(reply(form, gates, places) for form in script.replies))


def reply(form: str | ReplyForm, gates: Gates, places: Mapping[str, str]) -> Reply:
    """The reply that the form describes."""
    if isinstance(form, str):
        form = ReplyForm(text=form)
    acts: list[Act] = []
    if form.hold is not None:
        acts.append(Hold(gates[form.hold]))
    usage, end = form.usage or DEFAULT_USAGE, _end(form)
    if form.chunks is not None:
        acts.extend(Emit(chunk) for chunk in form.chunks if not isinstance(chunk, Used | Finish))
        usage = next((chunk.usage for chunk in form.chunks if isinstance(chunk, Used)), None)
        end = _streamed_end(form.chunks)
    if form.thought is not None:
        acts.append(Say(_text(form.thought, places), is_reasoning=True))
    if form.text:
        acts.append(Say(_text(form.text, places)))
    acts.extend(_call(call, places) for call in form.calls)
    if form.hold_after is not None:
        acts.append(Hold(gates[form.hold_after]))
    if form.hang:
        acts.append(Hold(Gate("nobody opens this")))
    return Reply(acts=tuple(acts), end=end, usage=usage, is_optional=form.optional)


def _end(form: ReplyForm) -> End:
    if form.fail is not None:
        fail = form.fail
        return Fail(fail.kind, fail.message or f"scripted failure: {fail.kind}", fail.status, fail.retry_after_s)
    if form.cut:
        return Cut()
    return form.end or ("tool-calls" if form.calls else "stop")


def _streamed_end(chunks: tuple[Chunk, ...]) -> End:
    return next((chunk.reason for chunk in chunks if isinstance(chunk, Finish)), Cut())


def _call(form: CallForm, places: Mapping[str, str]) -> Call:
    if form.raw is not None:
        return Call(form.tool, _text(form.raw, places), form.id)
    return Call(form.tool, {key: _value(value, places) for key, value in form.args.items()}, form.id)


def _value(value: JSON, places: Mapping[str, str]) -> Live:
    match value:
        case str():
            return cast(Live, _text(value, places))
        case dict():
            return {key: _value(inner, places) for key, inner in value.items()}
        case list():
            return [_value(inner, places) for inner in value]
        case _:
            return value


def _text(text: str, places: Mapping[str, str]) -> LiveText:
    """The text, or a function of the request where it holds something that the request alone knows."""
    text = _PLACE.sub(lambda found: places[found.group(1)], text)
    if _TAKEN.search(text) is None:
        return text

    def live(seen: SeenRequest) -> str:
        return _TAKEN.sub(lambda found: seen.find(found.group(1)), text)

    return live
