"""A delegation that waits: one run, waited for, disposed whatever happens, and turned into one result."""

from __future__ import annotations

from contextlib import nullcontext

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.json import JSONObject
from retinue.errors import RetinueError, error_record, is_outage
from retinue.model.content import Text
from retinue.subagent.admission import Admission
from retinue.subagent.lifecycle import SubagentStarted
from retinue.subagent.outcome import Outcome, bounded_diagnostic
from retinue.subagent.provider import Run
from retinue.subagent.tools.wording import headline
from retinue.tools.tool import ToolResult

__all__ = ["Ended", "finish_run", "foreground_result"]


class Ended(Struct, frozen=True):
    """How a run ended, and what failed around it: the run first, then its disposal."""

    outcome: Outcome
    failures: tuple[Exception, ...] = ()


async def finish_run(
    run: Run, *, run_id: str, provider: str, parent: Agent, admission: Admission | None = None
) -> Ended:
    """The run has ended and is disposed; its start and its end were published.

    The parent lends its slot to others while it waits. Cancelling aborts the child, disposes it and raises the
    cancellation. Raises: StoreFailure if nothing but the store failed: the same call finds the child again.
    """
    started = SubagentStarted(
        run_id=run_id, provider=provider, id=run.id, parent=parent.id, local=run.agent is not None
    )
    parent.bus.publish(started)
    outcome = Outcome(ending="aborted")
    failures: list[Exception] = []
    try:
        async with admission.lent(parent.id) if admission is not None else nullcontext():
            outcome = await run.result()
    except Exception as error:
        outcome = Outcome(ending="error")
        failures.append(error)
    finally:
        try:
            await run.dispose()
        except Exception as error:
            failures.append(error)
        parent.bus.publish(started.ended("error" if failures else outcome.ending, outcome.text))
    if len(failures) == 1 and is_outage(failures[0]):
        raise failures[0]
    return Ended(outcome, tuple(failures))


def foreground_result(run_id: str, child: str, ended: Ended) -> ToolResult:
    """What the model sees. Source: behaviour TS-24, TS-27, TS-28."""
    outcome, failures = ended.outcome, ended.failures
    meta: JSONObject = {
        "subagent_id": child,
        "run_id": run_id,
        "outcome": "error" if failures else outcome.ending,
    }
    if outcome.ending == "completed" and not failures:
        value: JSONObject = {"kind": "foreground", "run_id": run_id, "output": outcome.text}
        content = outcome.output or (Text("The agent finished without a closing message."),)
        return ToolResult(content=content, value=value, meta=meta)
    lines: list[str] = []
    if outcome.ending != "completed":
        lines.append(headline(outcome.ending))
        if outcome.diagnostic:
            lines.append(outcome.diagnostic)
    lines.extend(_failure_line(error) for error in failures)
    if outcome.text:
        lines.append(f"What it had said so far:\n{outcome.text}")
    ending: str = "error" if failures else outcome.ending
    code = f"SUBAGENT_{ending.upper().replace('-', '_')}"
    return ToolResult.error(code, "\n".join(lines), meta=meta)


def _failure_line(error: Exception) -> str:
    code, message = error_record(error)
    return bounded_diagnostic(f"{code}: {message}" if isinstance(error, RetinueError) else message)
