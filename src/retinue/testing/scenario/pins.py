"""What requests repeat, pinned once a composition class: the full system prompt and the schemas of the tools.

One scenario of a set pins a class; in all others a token stands for what is equal to it. A child whose system prompt or
tools are not those of its class declares that, and has them in a sidecar of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from retinue.base.json import JSONObject, decode, encode
from retinue.session.events import RequestHeader
from retinue.testing.scenario.folder import HEADER, Folder, prompt_name, tools_name
from retinue.testing.scenario.names import Names, session_name
from retinue.testing.scenario.taken import TakenSession
from retinue.testing.scenario.words import changed_words

__all__ = ["Headers", "Pin", "class_pin"]


@dataclass(frozen=True, slots=True)
class Pin:
    """A system prompt and tools, as the files that pin them say it."""

    system: str
    tools: str

    @classmethod
    def of(cls, header: RequestHeader, names: Names) -> Pin:
        """What that header repeats."""
        system = names(header.system or "").rstrip("\n")
        tools = names(msgspec.json.format(encode(header.tools or ()), indent=2).decode())
        return cls(f"{system}\n" if system else "", f"{tools}\n")


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two things that are pinned."""

    what: str
    declaration: str
    declared: tuple[int, ...]
    file: Callable[[int], str]
    of: Callable[[Pin], str]


def class_pin(folder: Folder, sessions: Sequence[TakenSession], names: Names) -> Pin | str:
    """The pin of the folder's class, or why there is none. The scenario that pins it has it from its own root."""
    name = folder.form.header.name
    pinning = [other for other in folder.siblings() if other.form.header.name == name and other.form.header.pins]
    if len(pinning) != 1:
        who = " and by ".join(other.name for other in pinning)
        return f"the class {name!r} is pinned by {f'{who}; leave it to one' if who else 'no scenario of the set'}"
    if folder.form.header.pins:
        headers = sessions[0].headers
        return Pin.of(headers[0], names) if headers else f"it pins the class {name!r}, and its root made no request"
    system, tools = pinning[0].text(prompt_name(0)), pinning[0].text(tools_name(0))
    if system is None or tools is None:
        return f"{pinning[0].name} pins the class {name!r} and lacks its files; refresh it first"
    return Pin(system, tools)


class Headers:
    """The request headers of one performance, held against the class and against what is declared."""

    def __init__(self, folder: Folder, pin: Pin, sessions: Sequence[TakenSession], names: Names) -> None:
        form = folder.form
        self._name = form.header.name
        self._changes = form.header_changes
        self._is_pinning = form.header.pins
        self._pin = pin
        self._sessions = sessions
        self._names = names
        self._config = dict(sessions[0].headers[0].config) if sessions[0].headers else {}
        self._parts = (
            _Part(
                "system prompt",
                "pins_child_system_prompts",
                form.pins_child_system_prompts,
                prompt_name,
                lambda pin: pin.system,
            ),
            _Part("tools", "pins_child_tool_schemas", form.pins_child_tool_schemas, tools_name, lambda pin: pin.tools),
        )
        self._own = {s.number: Pin.of(s.headers[0], names) for s in sessions if s.headers}

    def files(self) -> dict[str, str]:
        """The header file and the sidecars, by name."""
        head: JSONObject = {"class": self._name, "config": self._config}
        files = {HEADER: self._names(msgspec.json.format(encode(head), indent=2).decode()) + "\n"}
        for part in self._parts:
            if self._is_pinning:
                files[part.file(0)] = part.of(self._pin)
            files |= {part.file(n): part.of(self._own[n]) for n in part.declared if n in self._own}
        return files

    def problems(self) -> Iterator[str]:
        """Where a header is not that of the class, or of what was declared."""
        for part in self._parts:
            for number in part.declared:
                if number not in self._own:
                    yield f"{part.declaration} names {number}, and no session of that number made a request"
        for session in self._sessions:
            changes, declared = max(0, len(session.headers) - 1), self._changes.get(session.number, 0)
            if changes != declared:
                yield f"{session.who}: its header changed {changes} times; header_changes says {declared}"
            if session.number in self._own:
                yield from self._misfits(session, self._own[session.number])

    def _misfits(self, session: TakenSession, own: Pin) -> Iterator[str]:
        for part in self._parts:
            is_declared = session.number in part.declared
            is_equal = part.of(own) == part.of(self._pin)
            if is_declared and is_equal:
                yield (
                    f"{session.who}: its {part.what} is equal to that of the class {self._name!r}; remove it from "
                    f"{part.declaration}"
                )
            elif is_declared and not part.of(own):
                yield f"{session.who}: its {part.what} is empty, and an empty {part.file(session.number)} pins nothing"
            elif not is_declared and not is_equal:
                how = f"; declare it in {part.declaration}" if session.number else ""
                yield (
                    f"{session.who}: its {part.what} is not that of the class {self._name!r}{how}: "
                    f"{changed_words(part.of(self._pin), part.of(own))}"
                )

    def token(self, number: int, header: RequestHeader) -> JSONObject:
        """The header as the log of session `number` shows it: a token for what a file pins, the rest in full."""
        shown = Pin.of(header, self._names)
        return {
            "config": "<root>" if dict(header.config) == self._config else dict(header.config),
            "system": self._shown(number, shown.system, lambda pin: pin.system) or header.system,
            "tools": self._shown(number, shown.tools, lambda pin: pin.tools) or decode(encode(header.tools)),
        }

    def _shown(self, number: int, text: str, of: Callable[[Pin], str]) -> str | None:
        if text == of(self._pin):
            return f"<{self._name}>"
        own = self._own.get(number)
        return f"<pinned for {session_name(number)}>" if own is not None and text == of(own) else None
