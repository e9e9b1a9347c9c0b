"""The user of a scenario as far as calls need an approval: answers in order as they are asked, or by steps."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio

from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.host.approvals import APPROVALS, Answer, Approvals, Question
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.scenario.form import AnswerForm, Given

__all__ = ["Person"]


class Person:
    """An Answerer that outlives a restart. `problems` says what it was asked and had no answer to."""

    def __init__(self, answers: Sequence[Given]) -> None:
        """`answers` are given at once, in order; without any, questions wait for `give`."""
        self._by_itself = bool(answers)
        self._left = list(answers)
        self._given = 0
        self._open: list[Question] = []
        self._changed = anyio.Event()
        self._app: App | None = None
        self.problems: list[str] = []

    @contextmanager
    def here(self, app: App) -> Generator[None]:
        """It can be asked meanwhile."""
        self._app, self._open = app, []
        approvals = app.host.find(APPROVALS)
        if approvals is None:
            yield
        else:
            with approvals.answered_by(self):
                yield

    @property
    def unused(self) -> str:
        """What is wrong with the answers that are left; empty if none is."""
        if not self._left:
            return ""
        asked = "nobody was asked, and " if not self._given else ""
        return f"not performed: {asked}{len(self._left)} permission answers are left"

    def asked(self, question: Question) -> None:
        """See Answerer."""
        if not self._by_itself:
            self._open.append(question)
            self._changed.set()
            self._changed = anyio.Event()
        elif self._left:
            self._given += 1
            self._give(question, AnswerForm(give=self._left.pop(0)))
        else:
            self.problems.append(f"{question.label or question.agent} asks about {question.tool}: no answer is left")
            self._give(question, AnswerForm(give="reject"))

    def withdrawn(self, question: Question) -> None:
        """See Answerer."""
        self._open = [one for one in self._open if one.id != question.id]

    async def give(self, agent: SessionId, answer: AnswerForm) -> None:
        """The question of that agent, waited for, has that answer."""
        while not (asked := [one for one in self._open if one.agent == agent]):
            await self._changed.wait()
        self._open.remove(asked[0])
        self._give(asked[0], answer)

    def _give(self, question: Question, answer: AnswerForm) -> None:
        assert self._app is not None
        host = self._app.host
        match answer.give:
            case "allow" | "always":
                said = Answer(verb="allow", always=answer.give == "always")
            case "reject":
                said = Answer(verb="reject", words=answer.words)
            case "cancel":
                agent = host.agents.get(question.agent)
                if agent is not None and agent.session.header.origin is None:
                    agent.cancel(keep_mailbox=True)
                else:
                    host.require(CONTINUATIONS, needed_by="the scenario").interrupt(question.agent, None)
                return
        approvals: Approvals = host.require(APPROVALS, needed_by="the scenario")
        approvals.answer(question.id, said)
