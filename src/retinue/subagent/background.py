"""A one-shot run as a background task: what the task runtime needs to start it, wait for it and let it go."""

from __future__ import annotations

from retinue.subagent.lifecycle import SubagentStarted
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import Providers, Run, RunRequest
from retinue.tasks.job import Job, Stop, outcome_of_ending
from retinue.tasks.record import TaskOutcome

__all__ = ["run_job"]


def run_job(request: RunRequest, *, run_id: str, provider: str, providers: Providers) -> Job[Run]:
    """The job of one run. Its child is disposed before the task shows any outcome. Source: behaviour SS-24..SS-26."""
    parent = request.parent
    announced: list[SubagentStarted] = []
    came_to: list[Outcome] = []

    async def open(_: Stop) -> Run:
        run = await providers.start(provider, request)
        started = SubagentStarted(
            run_id=run_id, provider=provider, id=run.id, parent=parent.id, local=run.agent is not None
        )
        announced.append(started)
        parent.bus.publish(started)
        return run

    async def result(run: Run) -> TaskOutcome:
        try:
            outcome = await run.result()
        except Exception:
            came_to.append(Outcome(ending="error"))
            raise
        came_to.append(outcome)
        return outcome_of_ending(outcome.ending, outcome.text, outcome.diagnostic)

    async def release(run: Run) -> None:
        last = came_to[-1] if came_to else Outcome(ending="aborted")
        ending = last.ending
        try:
            await run.dispose()
        except Exception:
            ending = "error"
            raise
        finally:
            for started in announced:
                parent.bus.publish(started.ended(ending, last.text))

    return Job(open=open, result=result, release=release)
