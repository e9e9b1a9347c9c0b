"""What holds for an agent now: told in its conversation, not in its prompt, so that a change spoils no cached prefix.

Named, ordered, scoped contributions are rendered to one message, which joins a step's input when it says something
else than the newest one that the model still sees. Which one that is, is a fold of the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import Chains, PreStep, Reject, StepInput
from retinue.base.chain import Next
from retinue.base.ids import MessageId, derived_id
from retinue.base.scope import Layer, Undo
from retinue.errors import BadInput, PromptError
from retinue.model.content import Source, Text, UserMessage, text_of
from retinue.prompt.assembly import render
from retinue.prompt.sections import AssemblyContext
from retinue.session.folds import CONTEXT_PLUGIN

__all__ = ["Contribution", "ContributionText", "RuntimeContext"]

_ORDER = attrgetter("order")
_LEAD = "[context] This holds for you from now on. It replaces every earlier message of this kind."
_NOTHING = "[context] What earlier messages of this kind said does not hold any more."

ContributionText: TypeAlias = str | Callable[[Agent], str]


class Contribution(Struct, frozen=True, kw_only=True):
    """One part of an agent's runtime context. Raises: BadInput if the order is not finite or the name is empty."""

    name: str
    """Unique in its scope; a scoped one replaces one for all agents."""
    order: float
    """Parts are shown in ascending order; ties keep registration order."""
    text: ContributionText
    """Text with `{{name}}` variables, or a function whose result is used as it is. Empty text says nothing."""

    def __post_init__(self) -> None:
        if not self.name:
            raise BadInput("a contribution to the runtime context needs a name")
        if not math.isfinite(self.order):
            raise BadInput(f"runtime context {self.name!r}: its order must be a finite number, not {self.order}")


class RuntimeContext:
    """The contributions of one host, for all agents or for one. With nothing to say, a step costs a few µs more."""

    def __init__(self, chains: Chains) -> None:
        """It wraps `pre_step` of `chains`. Make it before other layers, so that it has the last word on the input."""
        self._shared: Layer[Contribution] = Layer("runtime context")
        self._scopes: WeakKeyDictionary[Agent, Layer[Contribution]] = WeakKeyDictionary()
        chains.pre_step.wrap(self._around)

    def add(self, contribution: Contribution) -> Undo:
        """It is part of every agent's context from the next step on. Raises: DuplicateName."""
        return self._shared.add(contribution.name, contribution)

    def add_for(self, agent: Agent, contribution: Contribution) -> Undo:
        """It is part of this agent's context from its next step on, and of nobody else's. Raises: DuplicateName."""
        scope = self._scopes.get(agent)
        if scope is None:
            scope = self._scopes[agent] = self._shared.child()
        return scope.add(contribution.name, contribution)

    def text(self, agent: Agent) -> str:
        """The agent's context as its model would read it now; empty if there is nothing to say.

        Raises: PromptError if a part cannot be rendered.
        """
        layer = self._scopes.get(agent, self._shared) if self._scopes else self._shared
        parts = layer.view.values()
        if not parts:
            return ""
        texts = [text for part in _ordered(parts) if (text := _text(part, agent))]
        return "\n\n".join((_LEAD, *texts)) if texts else ""

    async def _around(self, request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        entered = await inner(request)
        if isinstance(entered, Reject) or not (entered or _is_owed(request.agent)):
            return entered
        retained = request.agent.session.history.context
        wanted = self.text(request.agent) or (_NOTHING if retained is not None else "")
        if wanted == ("" if retained is None else text_of(retained.content)):
            return entered
        return (*entered, _message(request, wanted))


def _is_owed(agent: Agent) -> bool:
    """The open turn has a step coming, whether or not there is new input."""
    turn = agent.session.turns.open
    return turn is not None and turn.owes_step and not turn.concluded


def _ordered(parts: Iterable[Contribution]) -> list[Contribution]:
    return sorted(parts, key=_ORDER)


def _text(part: Contribution, agent: Agent) -> str:
    try:
        text = part.text(agent) if callable(part.text) else _filled(part.text, agent)
    except PromptError as error:
        raise PromptError(f"runtime context {part.name!r}: {error}") from error
    except Exception as error:
        raise PromptError(f"runtime context {part.name!r} failed: {type(error).__name__}: {error}") from error
    return text.strip("\n") if text.strip() else ""


def _filled(text: str, agent: Agent) -> str:
    if "{{" not in text:
        return text
    options = agent.options
    context = AssemblyContext(provider=options.provider or "", model=options.model or "", cwd=agent.cwd)
    return render(text, context)


def _message(request: StepInput, text: str) -> UserMessage:
    id = MessageId(derived_id("context", request.agent.id, request.turn, request.step))
    source = Source(kind="plugin", form="notice", plugin=CONTEXT_PLUGIN, summary="what holds for the agent now")
    return UserMessage(id, (Text(text),), source)
