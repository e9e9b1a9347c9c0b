"""What a deployment adds to continuable children: installed in each activation, revoked from all when it is removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.scope import Undo
from retinue.errors import ActivationSetupReleaseFailed, ActivationSetupRevoked, error_record
from retinue.session.events import Descriptor

__all__ = ["ChildSetup", "Contributions"]

ChildSetup: TypeAlias = Callable[[Agent, Descriptor], Awaitable[Callable[[], None]]]
"""Composes one activation of a child that is not published yet. Its result takes back what it did, at once."""


class _Contribution:
    def __init__(self, setup: ChildSetup) -> None:
        self.setup = setup
        self.is_revoked = False


class _Installed(Struct, frozen=True):
    contribution: _Contribution
    undo: Undo


class Contributions:
    """The contributions of one host, in the order of their registration, and where they are installed."""

    def __init__(self) -> None:
        self._known: tuple[_Contribution, ...] = ()
        self._installed: dict[Agent, list[_Installed]] = {}

    def add(self, setup: ChildSetup) -> Undo:
        """Every later activation has it. The result revokes it from every child at once.

        That raises ActivationSetupReleaseFailed if it could not be taken back everywhere; everything was tried.
        """
        contribution = _Contribution(setup)
        self._known = (*self._known, contribution)
        return Undo(lambda: self._revoke(contribution))

    def _revoke(self, contribution: _Contribution) -> None:
        contribution.is_revoked = True
        self._known = tuple(each for each in self._known if each is not contribution)
        undos = [one.undo for own in self._installed.values() for one in own if one.contribution is contribution]
        _undo_all(undos)

    async def install(self, agent: Agent, made: Descriptor) -> None:
        """All contributions are part of the agent, and end with its scope.

        Whatever fails takes back what was installed before it. Raises: what a contribution raises;
        ActivationSetupRevoked if one was removed meanwhile; ActivationSetupReleaseFailed if taking back failed too.
        """
        own: list[_Installed] = []
        self._installed[agent] = own
        try:
            chosen = self._known
            for contribution in chosen:
                undo = Undo(await contribution.setup(agent, made))
                own.append(_Installed(contribution, undo))
            if any(contribution.is_revoked for contribution in chosen):
                raise ActivationSetupRevoked(
                    f"a part of what composes children was removed while agent {agent.id!r} was being built; try again"
                )
        except BaseException as error:
            self._release(agent, error)
            raise
        agent.scope.callback(self._release, agent)

    def _release(self, agent: Agent, cause: BaseException | None = None) -> None:
        own = self._installed.pop(agent, [])
        _undo_all([one.undo for one in reversed(own)], cause)


def _undo_all(undos: Iterable[Undo], cause: BaseException | None = None) -> None:
    failures: list[Exception] = []
    for undo in undos:
        try:
            undo()
        except Exception as error:
            failures.append(error)
    if failures:
        causes = failures if cause is None else [cause, *failures]
        details = "; ".join(": ".join(error_record(error)) for error in causes)
        raise ActivationSetupReleaseFailed(f"not everything of a child's composition could be taken back: {details}")
