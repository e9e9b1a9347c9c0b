"""Questions that somebody must answer before a call may run: who is asked, what is open, and what nobody answers.

A question is open from the moment it is asked until it is decided or withdrawn, and its agent's call waits meanwhile.
What is open is a fold of the logs; this is where those who answer meet those who ask, in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import anyio
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.registry import Agents
from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.base.scope import Undo
from retinue.host.host import Seam

__all__ = ["APPROVALS", "Answer", "Answerer", "Approvals", "Policy", "Question", "path_of"]

Policy: TypeAlias = Literal["reject", "allow"]
"""What becomes of a question where nobody answers."""


class Question(Struct, frozen=True, kw_only=True):
    """A call that needs somebody's word. `id` is derived from the call, so it is the same after a crash."""

    id: str
    root: SessionId
    """The root of the tree that the asking agent belongs to."""
    agent: SessionId
    """Who asks."""
    label: str
    """What the asking agent is called; may be empty."""
    path: tuple[str, ...]
    """Labels from the root down to the asking agent; without one, the root is `root` and a child goes by its id."""
    tool: str
    arguments: JSONObject
    about: str | None
    """The command, path or host that the call acts on, if that is known."""
    rule: str
    """The rule that asks; granting it silences it for this agent."""


def path_of(agents: Agents, agent: Agent) -> tuple[str, ...]:
    """What `Question.path` holds for that agent, as far up as those above it are here."""
    path = [_name(agent)]
    above = agent.session.header.parent_session
    while above is not None:
        parent = agents.get(above)
        path.append(above if parent is None else _name(parent))
        above = None if parent is None else parent.session.header.parent_session
    return tuple(reversed(path))


def _name(agent: Agent) -> str:
    return agent.label or ("root" if agent.session.header.parent_session is None else agent.id)


class Answer(Struct, frozen=True, kw_only=True):
    """What was decided about one question."""

    verb: Literal["allow", "reject"]
    always: bool = False
    """With `allow`: the rule does not ask this agent again, also after a resume. Never handed to its children."""
    words: str | None = None
    """With `reject`: for the model, in place of the usual ones."""
    by: Literal["user", "policy"] = "user"


class Answerer(Protocol):
    """Somebody who can be asked: a terminal, an editor, a test. Both methods are synchronous and must not fail."""

    def asked(self, question: Question) -> None:
        """The question is open. It is answered by `Approvals.answer`, now or later, in any order."""
        ...

    def withdrawn(self, question: Question) -> None:
        """The question is not open any more, and not by an answer of this answerer: its call will not run."""
        ...


class _Open(Struct, eq=False):
    question: Question
    decide: Callable[[Answer], object]
    decided: anyio.Event
    answer: Answer | None = None


class Approvals:
    """The open questions of one host, oldest first, and those who answer them."""

    def __init__(self, policy: Policy = "reject") -> None:
        """`policy` decides what nobody is there to answer."""
        self.policy: Policy = policy
        self._open: dict[str, _Open] = {}
        self._answerers: dict[SessionId | None, Answerer] = {}

    def answered_by(self, answerer: Answerer, *, root: SessionId | None = None) -> Undo:
        """From now on `answerer` hears of the questions of that tree, or of all that nobody else hears of.

        It hears at once of those that are open. When it is taken back, what is open stays open for the next one. The
        newest answerer of a tree takes the place of the one before.
        """
        self._answerers[root] = answerer
        for one in tuple(self._open.values()):
            if self._answerer(one.question.root) is answerer:
                answerer.asked(one.question)

        def undo() -> None:
            if self._answerers.get(root) is answerer:
                del self._answerers[root]

        return Undo(undo)

    def _answerer(self, root: SessionId) -> Answerer | None:
        return self._answerers.get(root) or self._answerers.get(None)

    def has_answerer(self, root: SessionId) -> bool:
        """Somebody is there to answer questions of that tree."""
        return self._answerer(root) is not None

    def open(self, root: SessionId | None = None) -> tuple[Question, ...]:
        """The open questions of one tree, or of all, oldest first."""
        return tuple(one.question for one in self._open.values() if root in (None, one.question.root))

    def answer(self, id: str, answer: Answer) -> bool:
        """The question is decided, and its agent's log says so; False if it is not open (any more).

        Raises: the failure of a dropped session; the question stays open until its agent is gone.
        """
        one = self._open.get(id)
        if one is None:
            return False
        one.decide(answer)
        del self._open[id]
        one.answer = answer
        one.decided.set()
        return True

    async def ask(self, question: Question, decide: Callable[[Answer], object]) -> Answer:
        """What was answered. `decide` was called with it in the instant in which it was given.

        Cancelling withdraws the question. Where nobody is there to answer, the policy does, at once.
        """
        answerer = self._answerer(question.root)
        if answerer is None:
            answer = Answer(verb=self.policy, by="policy")
            decide(answer)
            return answer
        one = self._open[question.id] = _Open(question, decide, anyio.Event())
        try:
            answerer.asked(question)
            await one.decided.wait()
        finally:
            if self._open.get(question.id) is one:
                del self._open[question.id]
                answerer = self._answerer(question.root)
                if answerer is not None:
                    answerer.withdrawn(question)
        assert one.answer is not None
        return one.answer


APPROVALS: Seam[Approvals] = Seam("approvals")
"""Where calls are approved."""
