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
    came_to = Outcome(ending="aborted")

    async def open(_: Stop) -> Run:
        run = await providers.start(provider, request)
        started = SubagentStarted(
            run_id=run_id, provider=provider, id=run.id, parent=parent.id, local=run.agent is not None
        )
        announced.append(started)
        parent.bus.publish(started)
        return run

    async def result(run: Run) -> TaskOutcome:
        nonlocal came_to
        try:
            came_to = await run.result()
        except Exception:
            came_to = Outcome(ending="error")
            raise
        return outcome_of_ending(came_to.ending, came_to.text, came_to.diagnostic)

    async def release(run: Run) -> None:
        ending = came_to.ending
        try:
            await run.dispose()
        except Exception:
            ending = "error"
            raise
        finally:
            for started in announced:
                parent.bus.publish(started.ended(ending, came_to.text))

    return Job(open=open, result=result, release=release)
