"""`report` for continuable children: the tool and its section, installed in each child and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct

from retinue.agent.agent import Agent
from retinue.host.host import Host
from retinue.session.events import Descriptor
from retinue.subagent.continuation import CONTINUATIONS
from retinue.subagent.provider import PROVIDERS
from retinue.subagent.report import ReportDelivery, install_report, report_tool

__all__ = ["OPTIONS", "ReportConfig", "plugin"]


class ReportConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How reports reach the parent."""

    report_delivery: ReportDelivery = "next-step"
    """`next-step` wakes an idle parent or joins its nearest step; `quiet` waits for the parent's next turn."""
    max_per_turn: Annotated[int, Meta(ge=0)] = 20
    """Reports of one turn that may wake the parent; later ones are accepted and wake nobody."""


OPTIONS = ReportConfig


@asynccontextmanager
async def plugin(host: Host, config: ReportConfig) -> AsyncGenerator[None]:
    """Every later activation of a continuable child can report, except where the child is a program of its own.

    Raises: MissingSeam without delegation.
    """
    continuations = host.require(CONTINUATIONS, needed_by="report")
    providers = host.require(PROVIDERS, needed_by="report")

    report = report_tool(host, continuations, delivery=config.report_delivery, per_turn=config.max_per_turn)

    async def install(agent: Agent, made: Descriptor) -> Callable[[], None]:
        return _nothing if providers.is_external(made.provider) else install_report(agent, report)

    host.tools.expect(report.name)
    undo = continuations.contribute(install)
    try:
        yield
    finally:
        undo()


def _nothing() -> None:
    """Takes back what was not done."""
