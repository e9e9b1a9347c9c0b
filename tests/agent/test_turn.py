"""What one turn writes, in which order, and how it ends by itself."""

from retinue.agent.environment import AgentOptions
from retinue.agent.signals import AgentFailed
from retinue.prompt.sections import AssemblyContext, Section
from retinue.session.events import RequestContext, RequestHeaderChange
from retinue.session.store import SessionStore
from retinue.testing.host import MODEL, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.support.logs import outline, turn_end
from tests.support.tools import echo


async def test_a_turn_without_calls_is_one_step(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("hello")), store=store) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events, headers=True) == [
            "turn 1",
            "step 1",
            "user: hi",
            "request/header initial",
            "request/context",
            "model: hello",
            "step 1 end",
            "end 1 completed",
        ]


async def test_a_step_with_calls_is_followed_by_one_that_sees_their_results(store: SessionStore) -> None:
    model = ScriptedModel(calls(call("echo", words="a"), text="let me see"), text("done"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events) == [
            "turn 1",
            "step 1",
            "user: hi",
            "model: let me see echo()",
            "start 0 echo",
            "result 0 a",
            "step 1 end",
            "step 2",
            "model: done",
            "step 2 end",
            "end 1 completed",
        ]
        assert model.requests()[1].new == ("a",)


async def test_turns_are_numbered_on_and_steps_begin_again_at_one(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1"), text("2"), text("3")), store=store) as host:
        agent = await start_agent(host)
        for words in ("a", "b", "c"):
            await agent.follow_up(words)
            await agent.wait_idle()
        lines = outline(agent.session.events)
        assert [line for line in lines if line.startswith("turn")] == ["turn 1", "turn 2", "turn 3"]
        assert [line for line in lines if line == "step 1"] == ["step 1"] * 3


async def test_the_request_is_the_whole_conversation_in_order(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.follow_up("a")
        await agent.follow_up("b")
        await agent.wait_idle()
        assert model.requests()[1].text.split("\n") == ["a", "1", "b"]


async def test_the_header_is_logged_first_and_then_only_when_it_changes(store: SessionStore) -> None:
    model = ScriptedModel(*[text("ok")] * 4)
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        for step in range(4):
            if step == 1:
                agent.prompt.add(Section(name="persona", order=0, text="Be brief."))
            if step == 3:
                agent.tools.add(echo)
            await agent.follow_up("go")
            await agent.wait_idle()
        headers = [e.data for e in agent.session.events if isinstance(e.data, RequestHeaderChange)]
        assert [h.reason for h in headers] == ["initial", "change", "change"]
        assert [h.header.system for h in headers] == [None, "Be brief.", "Be brief."]
        assert [[t["name"] for t in h.header.tools or ()] for h in headers] == [[], [], ["echo"]]
        assert headers[0].header.config == {"model": MODEL}
        assert [r.system for r in model.requests()] == ["", *["Be brief."] * 3]


async def test_the_context_is_logged_when_the_model_changes(store: SessionStore) -> None:
    model = ScriptedModel(*[text("ok")] * 3, context_window=1000)
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        for name in ("a", "a", "b"):
            agent.options = AgentOptions(model=name).over(agent.options)
            await agent.follow_up("go")
            await agent.wait_idle()
        contexts = [e.data for e in agent.session.events if isinstance(e.data, RequestContext)]
        assert contexts == [RequestContext("scripted", "a", 1000), RequestContext("scripted", "b", 1000)]


async def test_another_provider_is_a_change_and_gets_the_whole_history(store: SessionStore) -> None:
    model, other = ScriptedModel(text("1")), ScriptedModel(text("2"), provider="other")
    async with scripted_host(model, store=store) as host:
        with host.add_client(other):
            agent = await start_agent(host)
            await agent.follow_up("a")
            await agent.wait_idle()
            agent.options = AgentOptions(provider="other", model=MODEL)
            await agent.follow_up("b")
            await agent.wait_idle()
        reasons = [e.data.reason for e in agent.session.events if isinstance(e.data, RequestHeaderChange)]
        assert reasons == ["initial"], "the header is the same, only the context is another one"
        assert other.requests()[0].text.split("\n") == ["a", "1", "b"]
        other.check()


async def test_without_a_model_the_turn_fails_and_names_what_is_missing(store: SessionStore) -> None:
    failures: list[AgentFailed] = []
    async with scripted_host(ScriptedModel(), store=store) as host:
        host.bus.on(AgentFailed, failures.append)
        agent = await start_agent(host)
        agent.options = AgentOptions()
        await agent.follow_up("hi")
        await agent.wait_idle()
        end = turn_end(agent.session.events)
        assert end.error is not None
        assert end.error.code == "MODEL_NOT_CONFIGURED"
        assert "no provider and no model" in end.error.message
        assert outline(agent.session.events)[-2:] == ["step 1 end", "end 1 error MODEL_NOT_CONFIGURED"]
    assert len(failures) == 1


async def test_a_prompt_that_cannot_be_rendered_fails_the_turn_in_its_step(store: SessionStore) -> None:
    def broken(_: AssemblyContext) -> str:
        raise OSError("gone")

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.prompt.add(Section(name="bad", order=0, text=broken))
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "step 1", "user: hi", "step 1 end", "end 1 error PROMPT"]
