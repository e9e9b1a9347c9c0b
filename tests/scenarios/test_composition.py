"""What children are made of: depth, restriction, and the past of a fork. Scenarios C33, C34 and C35."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.session.events import ActivationStart, Descriptor, EndSeed, SandboxMode, ToolReturned
from retinue.session.folds import descriptor
from retinue.subagent.provider import PROVIDERS, Capabilities, RunRequest
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from tests.scenarios.stock import (
    CONTINUABLE,
    children,
    continuations,
    listener,
    log,
    quiet,
    rows,
    said_to,
    settled,
    start,
    stock,
)

CAPPED = "plugins.subagent.max_depth="


async def test_c33_a_child_over_the_depth_is_refused_in_words_and_again_after_a_resume(tmp_path: Path) -> None:
    model = ScriptedModel()
    deeper = calls(call("subagent", description="G", prompt="too deep"))
    root = model.script("R", calls(call("subagent", description="C", prompt="delegate further")), text("a"), text("b"))
    model.script("C", deeper, text("could not delegate"), deeper, text("neither now"))
    async with stock(model, tmp_path, *CONTINUABLE, f"{CAPPED}1") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        (child,) = await children(app, agent.id)
        root.add(calls(call("send_message", subagent_id=child, message="try again")), text("c"), text("d"))
        await agent.follow_up("again").wait()
        await quiet(app, agent)
        for request in (model.requests("C")[1], model.requests("C")[3]):
            assert "subagent" in request.tool_names
            assert "depth 2" in request.results[-1]
            assert "maximum is 1" in request.results[-1]
        assert await children(app, child) == []
        results = [event.data for event in await log(app, child) if isinstance(event.data, ToolReturned)]
        assert [result.error.code for result in results if result.error] == ["DEPTH_EXCEEDED"] * 2


async def test_c33_a_cap_of_nothing_refuses_the_root_itself(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("myself then"))
    async with stock(model, tmp_path, *CONTINUABLE, f"{CAPPED}0") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        assert "maximum is 0" in model.requests("R")[1].results[0]
        assert await children(app, agent.id) == []


class Shallow(SpawnProvider):
    """Knows no depth, and shows what it was asked."""

    name = "shallow"
    capabilities = Capabilities(tool_filter=True, persona=True)
    asked: list[RunRequest]

    async def prepare(self, request: RunRequest):  # type: ignore[no-untyped-def]
        self.asked.append(request)
        return ()


async def test_c33_a_provider_without_depth_needs_provider_managed_and_gets_no_cap(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("a"), optional(text("b")))
    model.script("C", text("c"))
    chosen = "plugins.subagent.provider=shallow"
    async with stock(model, tmp_path, *CONTINUABLE, chosen, f"{CAPPED}provider-managed") as app:
        provider = Shallow(app.host.agents)
        provider.asked = []
        with app.host.require(PROVIDERS, needed_by="a test").add(provider):
            agent = await app.agent(label="R")
            await agent.follow_up("go").wait()
            await quiet(app, agent)
        assert [request.max_depth for request in provider.asked] == [None]
    async with stock(ScriptedModel(), tmp_path, *CONTINUABLE, chosen, f"{CAPPED}2") as app:
        adding = app.host.require(PROVIDERS, needed_by="a test").add(Shallow(app.host.agents))
        with pytest.raises(ConfigError, match="provider-managed"), adding:
            pass


HELPER = (
    "plugins.subagent.instances=[{tool_name: helper, background_mode: continuable, tool_filter: {allow: [read]}}]",
)


async def test_c34_a_restriction_removes_schema_and_guidance_together_and_never_the_childs_own(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script(
        "R",
        calls(call("helper", description="H", prompt="P"), call("subagent", description="C", prompt="P")),
        text("started"),
        *[optional(text("noted"))] * 2,
    )
    model.script("H", calls(call("subagent", description="X", prompt="Q")), text("I cannot"))
    model.script("C", text("done"))
    async with stock(model, tmp_path, *CONTINUABLE, *HELPER) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        helper, other = model.requests("H")[0], model.requests("C")[0]
        assert set(helper.tool_names) == {"read", "report"}
        assert "Deliver your result" in helper.system
        for gone in ("normal case for `subagent`", "normal case for `helper`", "task_output"):
            assert gone not in helper.system
            assert gone in other.system
        assert {"subagent", "helper", "report", "read"} <= set(other.tool_names)
        assert "there is no tool 'subagent'" in model.requests("H")[1].results[0]
        heads = {(request.system, request.tool_names) for request in model.requests("R")}
        assert len(heads) == 1
        assert not any("report" in request.tool_names for request in model.requests("R"))
        events = [event for id in await children(app, agent.id) for event in await log(app, id)]
        results = [event.data for event in events if isinstance(event.data, ToolReturned)]
        assert [result.error.code for result in results if result.error] == ["UNKNOWN_TOOL"]
        for id in await children(app, agent.id):
            assert await children(app, id) == []


async def test_c35_a_fork_takes_completed_turns_and_nothing_of_its_parents_life(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model, "top")
    r = model.script("R", hold(gate, text("T1")))
    model.script("F", text("looked back"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        top = await app.agent(label="top")
        id = await start(app, top, "R", prompt="FIRST")
        await gate.wait_reached()
        await continuations(app).send(top, id, "A")
        await continuations(app).send(top, id, "B")
        r.add(calls(call("subagent_fork", description="F", prompt="look back")), text("ok"), text("b done"))
        gate.open()
        await quiet(app, top)
        (fork,) = await children(app, id)
        (request,) = model.requests("F")
        words = request.text
        assert "FIRST" in words
        assert "T1" in words
        assert said_to(request)[-1] == "look back"
        assert "\nA\n" not in f"\n{words}\n"
        assert not any(call.name == "subagent_fork" for m in request.messages for call in getattr(m, "calls", ()))
        events = await log(app, fork)
        header = (await app.host.sessions.store.read(fork)).header
        assert header.seed_length is not None
        assert isinstance(events[header.seed_length].data, EndSeed)
        assert not any(isinstance(event.data, ActivationStart) for event in events)
        own = descriptor(header, events)
        assert own is not None
        assert own.mode == "one-shot"
        copied = [event.data for event in events[: header.seed_length] if isinstance(event.data, Descriptor)]
        assert [each.mode for each in copied] == ["continuable"]
        policies = [event.seq for event in events if isinstance(event.data, SandboxMode)]
        assert all(seq > header.seed_length for seq in policies if seq >= header.seed_length)
        assert [row.delivery.message.content[0].text for row in await rows(app, fork)] == ["look back"]  # type: ignore[union-attr]
        assert [said_to(one)[-1] for one in model.requests("R")] == ["FIRST", "A", "A", "B"]
        assert (await log(app, id))[-1].type == "subagent/settled"


async def test_c35_a_message_to_a_fork_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel()
    root = model.script("R", text("T1"))
    model.script("F", text("looked back"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("first").wait()
        await agent.wait_idle()
        root.add(calls(call("subagent_fork", description="F", prompt="look back")), text("ok"))
        await agent.follow_up("second").wait()
        await agent.wait_idle()
        (fork,) = await children(app, agent.id)
        root.add(calls(call("send_message", subagent_id=fork, message="hi")), text("no"))
        await agent.follow_up("third").wait()
        await agent.wait_idle()
        result = [event.data for event in await log(app, agent.id) if isinstance(event.data, ToolReturned)][-1]
        assert result.error is not None
        assert result.error.code == "NOT_RESUMABLE"


async def test_c35_a_fork_in_the_very_first_turn_is_a_fresh_child(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent_fork", description="F", prompt="look back")), text("ok"))
    model.script("F", text("nothing there"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("first").wait()
        await agent.wait_idle()
        (fork,) = await children(app, agent.id)
        assert (await app.host.sessions.store.read(fork)).header.seed_length is None
        assert said_to(model.requests("F")[0]) == ["look back"]
        assert "first" not in model.requests("F")[0].text


async def test_a_parent_settles_although_a_fork_of_it_copied_its_log(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model, "top")
    model.script("R", text("T1"), calls(call("subagent_fork", description="F", prompt="look back")), text("ok"))
    model.script("F", text("looked back"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        top = await app.agent(label="top")
        id = await start(app, top, "R")
        await settled(app, id)
        await continuations(app).send(top, id, "A")
        await quiet(app, top)
        assert await app.host.sessions.store.owing(top.id) == []


async def test_requests_list_tools_in_the_configured_order_also_those_that_only_children_have(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("waiting"), text("done"))
    model.script("C", text("c"))
    order = "tool_order=[report, write, <unlisted-tools>, subagent, structured_output, bash]"
    async with stock(model, tmp_path, *CONTINUABLE, order) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
    listed = {who: [spec.name for spec in model.requests(who)[0].tools] for who in "RC"}
    assert listed["R"][0] == "write"
    assert listed["C"][:2] == ["report", "write"]
    for names in listed.values():
        assert names[-2:] == ["subagent", "bash"]
        rest = names[names.index("write") + 1 : -2]
        assert rest == sorted(rest)
        assert "read" in rest


@pytest.mark.parametrize("order", ["[read]", "[<unlisted-tools>, <unlisted-tools>]", "[read, <unlisted-tools>, read]"])
async def test_an_order_without_one_place_for_all_others_is_refused_at_load(order: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tool order"):
        async with stock(ScriptedModel(), tmp_path, f"tool_order={order}"):
            pass


async def test_an_order_with_an_unknown_name_fails_the_turn_and_says_which(tmp_path: Path) -> None:
    async with stock(ScriptedModel(), tmp_path, "tool_order=[nope, <unlisted-tools>]") as app:
        result = await (await app.run("go")).result()
    assert result.error is not None
    assert (result.error.code, "'nope'" in result.error.message) == ("CONFIG", True)
