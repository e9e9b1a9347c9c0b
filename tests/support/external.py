"""A scripted host whose agents can delegate to external programs, and the agent program of the tests."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio

from retinue.agent.agent import Agent
from retinue.host.host import Host, HostOptions
from retinue.model.content import Text
from retinue.plugins import acp, permissions, report, subagent
from retinue.session.store import SessionStore
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import RunRequest
from retinue.subagent.standing import ChildApprovals
from retinue.testing.clock import FakeClock
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Call, call
from tests.support.delegation import providers

__all__ = ["AGENT", "delegate", "external", "notes", "order", "outcome", "program", "ran", "wait_note"]

AGENT = Path(__file__).with_name("acp_agent.py")


def program(state: Path, mode: str = "", **more: Any) -> acp.ExternalConfig:
    """The agent program of the tests, which keeps its sessions in the folder `state`."""
    state.mkdir(exist_ok=True)
    env = {"ACP_STATE": str(state), "ACP_MODE": mode, **more.pop("env", {})}
    return acp.ExternalConfig(command=sys.executable, args=("-S", str(AGENT)), env=env, **more)


@asynccontextmanager
async def external(
    model: ScriptedModel,
    agents: Mapping[str, acp.ExternalConfig],
    *,
    store: SessionStore | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    preset: permissions.Preset = "workspace-write",
    child_approvals: ChildApprovals = "reject",
    on_interrupt: Literal["continue", "settle"] = "continue",
    at_rest: bool = True,
    clock: FakeClock | None = None,
) -> AsyncGenerator[Host]:
    """A host with delegation, reports and those external agents. Left normally, all must have come to rest."""
    options = HostOptions(home=home, environ={} if environ is None else environ, on_interrupt=on_interrupt)
    async with (
        scripted_host(model, store=store, clock=clock, options=options, at_rest=at_rest) as host,
        permissions.plugin(host, permissions.PermissionsConfig(preset=preset)),
        subagent.plugin(host, subagent.SubagentConfig(background_mode="continuable", child_approvals=child_approvals)),
        report.plugin(host, report.ReportConfig()),
        acp.plugin(host, acp.AcpConfig(agents=dict(agents))),
    ):
        yield host
        await host.suspend()


def delegate(directive: str, /, *, agent: str = "ext", **more: Any) -> Call:
    """A call that hands the directive to the external agent."""
    return call(f"agent_{agent}", description="job", prompt=f"do: {directive}", **more)


def order(parent: Any, directive: str, **more: Any) -> RunRequest:
    """A delegation that no call asked for."""
    return RunRequest(parent=parent, prompt=(Text(f"do: {directive}"),), label="job", **more)


def notes(state: Path) -> list[str]:
    """What the programs wrote down, without their process ids."""
    path = state / "notes"
    return [line.partition(" ")[2] for line in path.read_text().splitlines()] if path.exists() else []


async def wait_note(state: Path, what: str, count: int = 1) -> int:
    """A program wrote `what` for the `count`-th time; the answer is its process id."""
    while True:
        path = state / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [line for line in lines if line.partition(" ")[2] == what]
        if len(found) >= count:
            return int(found[count - 1].partition(" ")[0])
        await anyio.sleep(0.01)


async def ran(host: Host, parent: Agent, directive: str) -> Outcome:
    """What a one-shot run of the directive came to."""
    run = await providers(host).start("acp:ext", order(parent, directive))
    try:
        return await run.result()
    finally:
        await run.dispose()


async def outcome(state: Path, directive: str, mode: str = "", **more: object) -> Outcome:
    """What the run came to in a host of its own."""
    async with external(ScriptedModel(), {"ext": program(state, mode, **more)}) as host:
        return await ran(host, await start_agent(host), directive)
