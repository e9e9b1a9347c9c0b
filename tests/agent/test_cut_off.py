"""What a tool may not do to its agent, and what does not count as standing still."""

from __future__ import annotations

import asyncio
import sys
import threading

import anyio

from retinue.base.ids import SessionId
from retinue.session.events import ToolReturned, TurnEnd
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from retinue.tools.function import tool
from retinue.tools.tool import Tool
from tests.support.stores import OpenStore

ROOT = SessionId("root")


@tool
async def cancels_itself() -> str:
    """Lets the cancellation of a task of its own out."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future
    return "never"


@tool
def ends_the_process() -> str:
    """Tries to."""
    sys.exit(2)


async def test_a_tool_that_cancels_itself_or_exits_is_an_error_result(store: SessionStore) -> None:
    model = ScriptedModel(calls(call("cancels_itself"), call("ends_the_process")), text("went on"))
    async with scripted_host(model, store=store, tools=[cancels_itself, ends_the_process]) as host:
        agent = await start_agent(host)
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        codes = [e.data.error.code for e in agent.session.events if isinstance(e.data, ToolReturned) and e.data.error]
        assert codes == ["TOOL_FAILED", "TOOL_FAILED"]
        assert agent.last_text == "went on"


async def test_a_thread_that_never_returns_does_not_hold_up_the_end_of_the_host(store: SessionStore) -> None:
    release, began = threading.Event(), anyio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def never_returns() -> str:
        """Blocks its thread."""
        loop.call_soon_threadsafe(began.set)
        release.wait()
        return "late"

    model = ScriptedModel(calls(call("never_returns")))
    async with scripted_host(model, store=store, tools=[never_returns], at_rest=False) as host:
        agent = await start_agent(host)
        await agent.follow_up("go").wait()
        await began.wait()
    release.set()


def waiting(gate: anyio.Event, answers: bool) -> Tool:
    @tool(name="waits", effect="rows")
    async def waits() -> str:
        """Waits for what goes on elsewhere."""
        gate.set()
        if not answers:
            await anyio.sleep_forever()
        return "ANSWER"

    return waits


async def test_a_turn_that_waits_for_what_goes_on_elsewhere_is_resumed_as_often_as_it_takes(
    open_store: OpenStore, clock: FakeClock
) -> None:
    for life in range(6):
        model = ScriptedModel(calls(call("waits"))) if life == 0 else ScriptedModel()
        gate = anyio.Event()
        async with scripted_host(model, store=open_store(clock), tools=[waiting(gate, False)], at_rest=False) as host:
            if life == 0:
                agent = await start_agent(host, id=ROOT)
                await agent.follow_up("go").wait()
            else:
                await resume_agent(host, ROOT)
            await gate.wait()
    async with scripted_host(
        ScriptedModel(text("done")), store=open_store(clock), tools=[waiting(anyio.Event(), True)]
    ) as host:
        agent = await resume_agent(host, ROOT)
        await agent.wait_idle()
        ends = [event.data.reason for event in agent.session.events if isinstance(event.data, TurnEnd)]
        assert ends == ["completed"]
