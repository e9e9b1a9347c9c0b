"""C28: who has seen the result decides whether a notice is sent. Real tools, real loop."""

from retinue.agent.agent import Agent
from retinue.model.content import text_of
from retinue.session.store import SessionStore
from retinue.tasks.job import Job, Stop, start_job
from retinue.tasks.record import Completed, TaskOutcome
from retinue.tasks.runtime import TASKS, Tasks
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from retinue.tools.function import tool
from retinue.tools.tool import ToolContext
from tests.tasks.work import Ends, notices, tasks_host


async def test_c28_who_has_seen_the_result_decides(store: SessionStore, clock: FakeClock) -> None:
    gates = [Gate(f"J{number}") for number in range(1, 5)]
    timed_out = Gate()
    held: list[Tasks] = []

    @tool(effect="rows", safe=True)
    async def launch(ctx: ToolContext, number: int) -> str:
        """Start job `number`."""

        async def open(_: Stop) -> int:
            return number

        async def result(number: int) -> TaskOutcome:
            await gates[number - 1].wait()
            return Completed(f"result of J{number}")

        assert isinstance(ctx.caller, Agent)
        job = Job(open=open, result=result)
        return (await start_job(held[0], job, kind="subagent", label=f"J{number}", owner=ctx.caller)).id

    model = ScriptedModel(
        calls(*[call("launch", number=number) for number in range(1, 5)]),
        calls(call("task_kill", task_id="subagent-1", reason="superseded")),
        calls(call("task_output", task_id="subagent-2", wait=True)),
        calls(call("task_output", task_id="subagent-2"), call("task_kill", task_id="subagent-2")),
        calls(call("task_output", task_id="subagent-3", wait=True, timeout_ms=7000)),
        hold(timed_out, calls(call("task_list"))),
        text("waiting for the rest"),
        text("J4 is in"),
    )
    async with tasks_host(model, store=store, clock=clock, tools=[launch]) as (host, _):
        held.append(host.require(TASKS, needed_by="the test"))
        agent, ends = await start_agent(host), Ends(host)
        agent.follow_up("go")

        await clock.wait_sleeping(30)
        gates[1].open()
        await clock.wait_sleeping(7)
        await clock.advance(7)
        await timed_out.wait_reached()
        gates[2].open()
        while "J3" not in {task.label for task in ends.settled}:
            await ends.wait(len(ends.settled) + 1)
        timed_out.open()
        await agent.wait_idle()
        assert agent.status == "idle"
        gates[3].open()
        await ends.wait(4)
        await agent.wait_idle()

        waited, (read, killed), wait_ran_out = (
            model.requests()[3].new[0],
            model.requests()[4].new[:2],
            model.requests()[5].new[0],
        )
        assert waited == read == "result of J2\n[status: completed]"
        assert "already finished" in killed
        assert wait_ran_out == "(no new output)\n[status: running]"
        told = [text_of(row.delivery.message.content) for row in await notices(host, agent.id)]
        assert ["J3" in told[0], "J4" in told[1]] == [True, True], told
        assert len(told) == 2
        assert told[0] in model.requests()[6].new, "a busy owner reads it in its next step"
        assert model.requests()[7].new == (told[1],), "an idle owner gets a turn"
        assert {task.label: task.status for task in ends.settled} == {
            "J1": "killed",
            "J2": "completed",
            "J3": "completed",
            "J4": "completed",
        }
