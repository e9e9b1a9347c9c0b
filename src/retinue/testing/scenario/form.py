"""What `scenario.yaml` and `scripts.yaml` may say. Unknown keys are refused with the place where they stand.

The structs are the form as it is written. What the steps do is in `steps.py`, what the replies become in `replies.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct

from retinue.base.json import JSONObject
from retinue.errors import ConfigError
from retinue.model.chunks import Chunk
from retinue.model.content import Usage

__all__ = [
    "ROOT",
    "AnswerForm",
    "CallForm",
    "FailForm",
    "Given",
    "HeaderForm",
    "RefuseForm",
    "ReplyForm",
    "ScenarioForm",
    "ScriptForm",
    "StepForm",
    "Verb",
    "WaitForm",
    "read_scenario",
    "read_scripts",
]

ROOT = "root"
"""The label of the session that the user talks to."""

S = TypeVar("S")


class _Form(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class CallForm(_Form, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call. `raw` is argument text as the model wrote it, in place of `args`."""

    tool: str
    args: JSONObject = {}
    raw: str | None = None
    id: str | None = None
    """The provider's call id; a fresh one if absent."""


class FailForm(_Form, frozen=True, kw_only=True, omit_defaults=True):
    """The request fails, before any chunk unless the reply says something first. Fields as in ModelError."""

    kind: str
    message: str | None = None
    status: int | None = None
    retry_after_s: float | None = None


class ReplyForm(_Form, frozen=True, kw_only=True, omit_defaults=True):
    """One reply. `{{fromRequest:REGEX}}` in a text or an argument is taken from the live request: what matches last, or
    its first group. `{{work}}`, `{{home}}` and `{{temp}}` are the folders that these names stand for in logs."""

    thought: str | None = None
    """Reasoning, which comes first."""
    text: str | None = None
    """What is said, before the calls."""
    calls: tuple[CallForm, ...] = ()
    """The tools that are asked for."""
    chunks: tuple[Chunk, ...] | None = None
    """The whole reply as it streams, in place of `thought`, `text` and `calls`."""
    end: Literal["length", "content-filter"] | None = None
    """The reply is not whole: it hit its ceiling of tokens, or the model declined."""
    fail: FailForm | None = None
    """The request fails, after what is said above."""
    cut: bool = False
    """The stream breaks off."""
    hang: bool = False
    """Nothing more comes until the request is cancelled."""
    hold: str | None = None
    """The gate that it waits for before it says anything."""
    hold_after: str | None = None
    """The gate that its end waits for, when everything was said."""
    usage: Usage | None = None
    """100 tokens in and 10 out if absent."""
    optional: bool = False
    """It may stay unused."""


class ScriptForm(_Form, frozen=True, kw_only=True, omit_defaults=True):
    """The replies of one session, which is found by its label or by what it was told (a regular expression)."""

    label: str | None = None
    """`root`, or the `description` with which a child was started."""
    prompt: str | None = None
    """In place of the label: found in a message of the session when it first asks."""
    replies: tuple[str | ReplyForm, ...]
    """One for each request; a text is a reply that only says it."""


class WaitForm(_Form, frozen=True, kw_only=True):
    """A durable boundary, or a point that a request has come to. Exactly one of them; sessions are named by label."""

    turn_start: str | None = None
    """A turn of that session has begun."""
    turn_end: str | None = None
    """A turn of that session has ended."""
    settled: str | None = None
    """An activation of that child has ended."""
    event: str | None = None
    """The log of the session `of` holds an event of that type."""
    of: str = ROOT
    """For `event`."""
    request: str | None = None
    """A model request of that session has been made."""
    gate: str | None = None
    """A reply has come to that gate."""
    count: int = 1
    """How often since the beginning."""


class RefuseForm(_Form, frozen=True, kw_only=True):
    """The store refuses the next batch that appends such an event to that session."""

    event: str
    """Its type."""
    of: str = ROOT
    """The label of the session."""


Given: TypeAlias = Literal["allow", "always", "reject", "cancel"]


class AnswerForm(_Form, frozen=True, kw_only=True):
    """What the user says to the question of a session, when it has come."""

    of: str = ROOT
    """The label of the session that asks."""
    give: Given
    """Once, or `always` for that session; no; or its turn is stopped instead of an answer."""
    words: str | None = None
    """With `reject`: for the model."""


class StepForm(_Form, frozen=True, kw_only=True):
    """One step: exactly one of the verbs, and `fails` where it is expected to."""

    prompt: str | None = None
    """Sent, and everything came to rest."""
    send: str | None = None
    """Sent, without waiting. With `mode`: as a turn of its own, into the next step, or there without waking."""
    mode: Literal["follow-up", "steer", "inject"] = "follow-up"
    """How a message reaches the root."""
    wait: Literal["quiet"] | WaitForm | None = None
    """Until nothing is at work, or until that has happened."""
    cancel: str | None = None
    """The current turn of that session is stopped."""
    disconnect: bool = False
    """The front end goes away, and its agent with it."""
    open: str | None = None
    """The gate opens, when a reply has come to it."""
    begin_maintenance: str | None = None
    """That session is idle, and takes messages without reading them."""
    end_maintenance: str | None = None
    """It reads again."""
    restart: Literal["suspend", "crash"] | None = None
    """The process ends in order, or at the next write, and another one resumes the root."""
    refuse: RefuseForm | None = None
    permission: Literal["read-only", "workspace-write", "full-access"] | None = None
    """The root's permission from here on."""
    answer: AnswerForm | None = None
    """A question about a call is answered, in any order. Not together with `permission_answers`."""
    advance: float | None = None
    """Somebody sleeps for so many seconds, and then they have passed."""
    fails: str | None = None
    """The code of the error that the step ends with."""


Verb: TypeAlias = Literal[
    "prompt",
    "send",
    "wait",
    "cancel",
    "disconnect",
    "open",
    "begin_maintenance",
    "end_maintenance",
    "restart",
    "refuse",
    "permission",
    "answer",
    "advance",
]
_VERBS: tuple[Verb, ...] = get_args(Verb)


class HeaderForm(_Form, frozen=True, kw_only=True):
    """The composition class that the root's request header belongs to, and whether this scenario pins it."""

    name: str
    """Scenarios of one folder whose roots see the same have the same name here."""
    pins: bool = False
    """One scenario of a class says so."""


class ScenarioForm(_Form, frozen=True, kw_only=True):
    """The whole of `scenario.yaml`."""

    about: str
    """What it shows, for people."""
    front_end: Literal["headless", "acp"] = "headless"
    """Who talks to the root: as `retinue run` does, or a client of ACP that sees subagent sessions."""
    header: HeaderForm
    """The class of its requests."""
    config: JSONObject = {}
    """A configuration as in `retinue.yaml`."""
    config_file: str | None = None
    """A configuration file beside it, in place of `config`; relative to the folder of the scenario."""
    tools: tuple[str, ...] = ()
    """Tools of your own, each as `module:name`."""
    steps: tuple[StepForm, ...]
    """What happens, in order. After the last one everything comes to rest."""
    scripts: tuple[ScriptForm, ...] | None = None
    """Who answers what; absent if the folder has a `scripts.yaml`, which `record` writes."""
    pins_child_system_prompts: tuple[int, ...] = ()
    """Numbers of the logs whose system prompt differs from the class, each pinned in a sidecar of its own."""
    pins_child_tool_schemas: tuple[int, ...] = ()
    """The same for the tools."""
    header_changes: dict[int, int] = {}
    """How often the header changes in the middle of a log, by its number; the root's is 0."""
    permission_answers: tuple[Given, ...] = ()
    """What the user answers when asked about a call, in order and at once. Without it and without a step `answer`,
    nobody is there to be asked."""


def verb_of(step: StepForm) -> Verb | None:
    """The one thing that the step does; None if it says nothing or several things."""
    said: list[Verb] = [verb for verb in _VERBS if getattr(step, verb) not in (None, False)]
    return said[0] if len(said) == 1 else None


def read_scenario(file: Path) -> ScenarioForm:
    """The scenario that the file describes. Raises: ConfigError with the place of what is wrong."""
    form = _read(file, _scenario)
    for number, step in enumerate(form.steps, 1):
        if verb_of(step) is None:
            raise ConfigError(f"{file}: step {number} must do exactly one of {', '.join(_VERBS)}")
        if step.wait is not None and step.wait != "quiet":
            _check_wait(file, number, step.wait)
    if form.permission_answers and any(step.answer is not None for step in form.steps):
        raise ConfigError(f"{file}: answer by permission_answers or by steps, not both")
    if form.config and form.config_file is not None:
        raise ConfigError(f"{file}: give config or config_file, not both")
    _check_scripts(file, form.scripts or ())
    return form


def _check_wait(file: Path, number: int, wait: WaitForm) -> None:
    said = (wait.turn_start, wait.turn_end, wait.settled, wait.event, wait.request, wait.gate)
    if sum(value is not None for value in said) != 1:
        raise ConfigError(
            f"{file}: step {number} must wait for exactly one of turn_start, turn_end, settled, event, request, gate"
        )


def read_scripts(file: Path) -> tuple[ScriptForm, ...]:
    """The scripts of a `scripts.yaml`. Raises: ConfigError with the place of what is wrong."""
    scripts = _read(file, _scripts)
    _check_scripts(file, scripts)
    return scripts


def _check_scripts(file: Path, scripts: tuple[ScriptForm, ...]) -> None:
    for number, script in enumerate(scripts, 1):
        if (script.label is None) == (script.prompt is None):
            raise ConfigError(f"{file}: script {number} must name its session by label or by prompt")


@lru_cache(maxsize=512)  # the scenarios of a set look at each other: each would be parsed once for every other
def _scenario(data: bytes) -> ScenarioForm:
    return msgspec.yaml.decode(data, type=ScenarioForm)


def _scripts(data: bytes) -> tuple[ScriptForm, ...]:
    return msgspec.yaml.decode(data, type=tuple[ScriptForm, ...])


def _read(file: Path, decode: Callable[[bytes], S]) -> S:
    try:
        return decode(file.read_bytes())
    except (msgspec.MsgspecError, OSError) as error:
        raise ConfigError(f"{file}: {error}") from error
