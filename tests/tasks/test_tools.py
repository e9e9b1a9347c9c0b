"""The three tools, their guidance and the plugin that brings them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from retinue.agent.agent import Agent
from retinue.compose.keys import read_options
from retinue.errors import BadInput, ConfigError, RetinueError
from retinue.host.host import Host
from retinue.model.content import text_of
from retinue.plugins.tasks import OPTIONS
from retinue.session.store import SessionStore
from retinue.tasks.record import Completed, Failed, Killed
from retinue.tasks.runtime import Tasks
from retinue.tasks.tools import task_tools
from retinue.tasks.wording import receipt
from retinue.testing.clock import FakeClock
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from retinue.tools.function import tool
from retinue.tools.tool import CallKey, ToolContext, ToolResult
from tests.tasks.work import Ends, Work, begin, notices, tasks_host


class Desk:
    """One agent that calls the real tools."""

    def __init__(self, host: Host, tasks: Tasks, agent: Agent | None) -> None:
        self.host, self.tasks, self.agent = host, tasks, agent

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        found = (self.agent or self.host).tools.get(name)
        assert found is not None
        id = self.agent.id if self.agent is not None else "nobody"
        key = CallKey(session_id=id, seq=1, index=0)  # pyright: ignore[reportArgumentType]
        context = ToolContext(caller=self.agent, key=key, name=name, call_id="c", turn=1, step=1)
        return await found.body(context, arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        return text_of((await self.call(name, **arguments)).content)

    async def refusal(self, name: str, **arguments: Any) -> str:
        with pytest.raises(RetinueError) as caught:
            await self.call(name, **arguments)
        return str(caught.value)


def facts(result: ToolResult) -> dict[str, Any]:
    """The value of a result."""
    return cast("dict[str, Any]", result.value)


@asynccontextmanager
async def desk(store: SessionStore, clock: FakeClock | None = None, **options: Any) -> AsyncGenerator[Desk]:
    chosen: dict[str, Any] = {"completion_delivery": "quiet", **options}
    async with tasks_host(store=store, clock=clock, **chosen) as (host, tasks):
        yield Desk(host, tasks, await start_agent(host))


async def test_tt01_the_plugin_brings_surface_guidance_and_tools(store: SessionStore) -> None:
    async with desk(store) as d:
        assert {"task_output", "task_list", "task_kill"} <= set(d.host.tools.view)
        (section,) = [s for s in d.host.prompt.sections if s.name == "tool:tasks"]
        assert section.order == 106
        assert begin(d.tasks, Work(), d.agent).id == "bash-1"


async def test_tt02_guidance_is_shown_to_those_who_see_the_tools(store: SessionStore) -> None:
    model = ScriptedModel()
    for label in ("all", "no kill", "none"):
        model.script(label, text("ok"))
    async with tasks_host(model, store=store) as (host, _):
        agents = [await start_agent(host, label) for label in ("all", "no kill", "none")]
        agents[1].tools.restrict(deny=["task_kill"])
        agents[2].tools.restrict(allow=[])
        for agent in agents:
            await agent.follow_up("hi")
            await agent.wait_idle()
        whole, partly, nothing = (model.requests(label)[0].system for label in ("all", "no kill", "none"))
        for words in ("Keep track of the ids", "never poll", "go on with", "Before your final answer", "`task_kill`"):
            assert words in whole
        assert "`task_kill`" not in partly
        assert "`task_output`" in partly
        assert nothing == ""


async def test_tt03_output_does_not_block_without_wait(store: SessionStore) -> None:
    async with desk(store) as d:
        work = Work(streams=True)
        begin(d.tasks, work, d.agent)
        work.new_output = "line\n"
        result = await d.call("task_output", task_id="bash-1")
        assert text_of(result.content) == "line\n[status: running]"
        assert result.value == {
            "text": "line\n[status: running]",
            "task": {
                "id": "bash-1",
                "kind": "bash",
                "label": "run it",
                "status": "running",
                "started_at": d.host.clock.now_ms(),
            },
        }


async def test_tt03_with_wait_it_returns_when_the_task_has_ended(store: SessionStore) -> None:
    async with desk(store) as d:
        work = Work()
        begin(d.tasks, work, d.agent)
        work.end(Completed("all of it"))
        assert await d.text("task_output", task_id="bash-1", wait=True) == "all of it\n[status: completed]"
        assert d.agent is not None
        assert await notices(d.host, d.agent.id) == []


@pytest.mark.parametrize(
    ("asked", "waits_s"), [({}, 30.0), ({"timeout_ms": 1500}, 1.5), ({"timeout_ms": 999_999_999}, 600.0)]
)
async def test_tt04_tt06_a_wait_is_bounded_and_running_out_is_a_success(
    store: SessionStore, clock: FakeClock, asked: dict[str, int], waits_s: float
) -> None:
    import anyio

    async with desk(store, clock) as d:
        begin(d.tasks, Work(), d.agent)
        got: list[ToolResult] = []

        async def wait() -> None:
            got.append(await d.call("task_output", task_id="bash-1", wait=True, **asked))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await clock.wait_sleeping(waits_s)
            await clock.advance(waits_s)
        assert not got[0].is_error
        assert text_of(got[0].content) == "(no new output)\n[status: running]"


def test_tt04_a_default_wait_above_the_cap_fails_at_load(store: SessionStore) -> None:
    for bad in (600_001, 0, 1.5):
        with pytest.raises(ConfigError, match="default_wait_ms|defaultWaitMs"):
            read_options("tasks", {"defaultWaitMs": bad}, OPTIONS)
    with pytest.raises(BadInput):
        task_tools(None, default_wait_ms=600_001)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("a", "a\n[status: completed, fine]"),
        ("a\n\n", "a\n[status: completed, fine]"),
        ("", "(no new output)\n[status: completed, fine]"),
        ("\n", "(no new output)\n[status: completed, fine]"),
        ("a\n\nb", "a\n\nb\n[status: completed, fine]"),
    ],
)
async def test_tt05_body_and_status_are_separated_by_one_newline(store: SessionStore, output: str, shown: str) -> None:
    async with desk(store) as d:
        work = Work()
        begin(d.tasks, work, d.agent)
        work.end(Completed(output, "fine"))
        assert await d.text("task_output", task_id="bash-1", wait=True) == shown


async def test_tt07_the_list_has_a_line_per_task(store: SessionStore) -> None:
    async with desk(store) as d:
        assert await d.text("task_list") == "(no background tasks)"
        stubborn = Work(obeys=False)
        begin(d.tasks, stubborn, d.agent, label="build\nit")
        begin(d.tasks, Work(), d.agent, kind="subagent", label="look")
        await d.call("task_kill", task_id="bash-1")
        result = await d.call("task_list")
        assert text_of(result.content) == "bash-1 [bash] stopping — build it\nsubagent-1 [subagent] running — look"
        assert [task["id"] for task in facts(result)["tasks"]] == ["bash-1", "subagent-1"]
        stubborn.end(Killed())


async def test_tt08_kill_answers_at_once_and_says_what_became_of_it(store: SessionStore) -> None:
    async with desk(store) as d:
        work = Work(obeys=False)
        begin(d.tasks, work, d.agent)
        result = await d.call("task_kill", task_id="bash-1", reason="enough")
        assert (facts(result)["outcome"], facts(result)["task"]["status"]) == ("cancellation-requested", "stopping")
        assert "no notice" in text_of(result.content)
        assert work.reasons == ["enough"]
        work.end(Killed())
        await d.call("task_output", task_id="bash-1", wait=True)
        result = await d.call("task_kill", task_id="bash-1")
        assert (facts(result)["outcome"], facts(result)["task"]["status"]) == ("already-finished", "killed")


async def test_tt09_a_task_object_has_no_owner_and_no_reported_bit(store: SessionStore) -> None:
    async with desk(store) as d:
        work = Work()
        begin(d.tasks, work, d.agent)
        work.end(Failed("x"))
        result = await d.call("task_output", task_id="bash-1", wait=True)
        assert sorted(facts(result)["task"]) == [
            "detail",
            "finished_at",
            "id",
            "kind",
            "label",
            "started_at",
            "status",
        ]


@pytest.mark.parametrize("name", ["task_output", "task_kill"])
async def test_tt10_empty_unknown_and_foreign_ids_are_errors(store: SessionStore, name: str) -> None:
    async with desk(store) as d:
        stranger = Desk(d.host, d.tasks, await start_agent(d.host))
        begin(d.tasks, Work(), d.agent)
        assert "empty" in await d.refusal(name, task_id=" ")
        assert "no background task 'bash-9'; your tasks: bash-1" in await d.refusal(name, task_id="bash-9")
        assert "belongs to another agent" in await stranger.refusal(name, task_id="bash-1")
        assert "belongs to another agent" in await Desk(d.host, d.tasks, None).refusal(name, task_id="bash-1")


@pytest.mark.parametrize("name", ["task_output", "task_kill"])
async def test_an_id_of_an_agent_is_answered_with_the_tools_that_take_it(store: SessionStore, name: str) -> None:
    async def body() -> str:
        """Do it."""
        return ""

    async with desk(store) as d:
        id = "agent-0123456789abcdef01234567"
        refusal = await d.refusal(name, task_id=id)
        assert f"'{id}' is an agent, not a background task" in refusal
        assert "`" not in refusal, "no tool is named that is not there"
        for other in ("send_message", "interrupt_agent", "list_agents"):
            d.host.tools.add(tool(name=other)(body))
        refusal = await d.refusal(name, task_id=id)
        for other in ("`send_message`", "`interrupt_agent`", "`list_agents`"):
            assert other in refusal


@pytest.mark.parametrize("limit", [1, 10, 30, 50, 60, 80, 200])
async def test_tt11_a_byte_limit_bounds_every_text_about_the_task(store: SessionStore, limit: int) -> None:
    async with desk(store) as d:
        work, broken = Work(streams=True), Work()
        begin(d.tasks, work, d.agent, limit=limit)
        begin(d.tasks, broken, d.agent, limit=limit)
        work.new_output = "".join(f"zeile {n} für ü\n" for n in range(50))
        shown = await d.text("task_output", task_id="bash-1")
        assert len(shown.encode()) <= limit
        if limit >= 80:
            assert shown.startswith("[... earlier output cut ...]\n")
            assert shown.endswith("zeile 49 für ü\n[status: running]")
        elif limit >= 30:
            assert shown.endswith("[status: running]")
        assert len((await d.text("task_kill", task_id="bash-1")).encode()) <= limit
        broken.cancel_error = OSError("ü" * 300)
        failed = await d.call("task_kill", task_id="bash-2")
        assert failed.is_error
        assert len(text_of(failed.content).encode()) <= max(limit, len("Error: "))


async def test_a_failing_producer_is_an_error_result(store: SessionStore) -> None:
    async with desk(store) as d:
        work = Work()
        begin(d.tasks, work, d.agent)
        work.cancel_error = OSError("no permission")
        result = await d.call("task_kill", task_id="bash-1")
        assert (result.is_error, result.code) == (True, "UNKNOWN")
        assert "no permission" in text_of(result.content)


async def test_tt22_the_model_collects_a_task_through_the_real_loop(store: SessionStore) -> None:
    model = ScriptedModel(
        calls(call("task_list")),
        calls(call("task_output", task_id="bash-1", wait=True), call("task_output", task_id="bash-2", wait=True)),
        text("done"),
    )
    async with tasks_host(model, store=store) as (host, tasks):
        agent, works, ends = await start_agent(host), [Work(), Work()], Ends(host)
        for work in works:
            begin(tasks, work, agent)
        agent.follow_up("go")
        await model.wait_requests(2)
        for work in works:
            work.end(Completed("out"))
        await ends.wait(2)
        await agent.wait_idle()
        assert model.requests()[2].new[:2] == ("out\n[status: completed]",) * 2


async def test_tt05_the_receipt_of_a_start_says_that_a_notice_comes(store: SessionStore) -> None:
    async with desk(store) as d:
        said = receipt(begin(d.tasks, Work(), d.agent))
        for words in ("bash-1", "notice", "do not poll", "task_output", "task_kill"):
            assert words in said


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="colour"):
        read_options("tasks", {"colour": 1}, OPTIONS)
    with pytest.raises(ConfigError, match="loud"):
        read_options("tasks", {"completionDelivery": "loud"}, OPTIONS)
