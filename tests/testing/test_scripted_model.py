"""The scripted model keeps strict accounts, and says whose."""

import anyio
import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import ModelError
from retinue.model.assemble import Assembler
from retinue.model.client import ModelRequest
from retinue.model.content import AssistantMessage, Text, Usage, UserMessage
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, cut, fail, hold, optional, refuse, text, truncated
from tests.support.tools import echo


def request(model: ScriptedModel, *words: str, session: str = "s", label: str = "") -> ModelRequest:
    transcript = model.transcript()
    transcript.extend([UserMessage(MessageId(f"m{i}"), (Text(w),)) for i, w in enumerate(words or ("hi",))])
    return ModelRequest(
        model="m", system="", tools=(), transcript=transcript, session_id=SessionId(session), label=label
    )


async def ask(model: ScriptedModel, *words: str, session: str = "s", label: str = "") -> AssistantMessage:
    assembler = Assembler()
    asked = request(model, *words, session=session, label=label)
    await model.stream(asked, model.encode(asked), assembler.feed)
    return assembler.message()


async def test_an_unexpected_request_fails_and_is_reported() -> None:
    model = ScriptedModel(text("one"))
    await ask(model, label="R")
    with pytest.raises(ModelError, match="only 1 replies") as failure:
        await ask(model, label="R")
    assert failure.value.kind == "bad-request"
    with pytest.raises(AssertionError, match=r"request 2 of 'R' \(s\)"):
        model.check()
    assert [seen.state for seen in model.requests("R")] == ["answered", "unexpected"]


async def test_a_request_that_no_script_fits_is_unexpected() -> None:
    model = ScriptedModel()
    model.script("other", optional(text("x")))
    with pytest.raises(ModelError, match="no script fits"):
        await ask(model)


async def test_an_unused_reply_is_reported_unless_it_is_optional() -> None:
    model = ScriptedModel()
    model.script("R", text("one"), text("two"), optional(text("three")))
    await ask(model, label="R")
    with pytest.raises(AssertionError, match="reply 2 of the script of 'R' was never asked for: 'two'"):
        model.check()
    await ask(model, label="R")
    model.check()


async def test_scripts_find_their_sessions_by_id_label_and_prompt() -> None:
    model = ScriptedModel(text("anybody"))
    model.script(prompt("scan", first=True), text("by prompt"))
    model.script("L", text("by label"))
    model.script("id-1", text("by id"))
    assert (await ask(model, "x", session="id-1")).text == "by id"
    assert (await ask(model, "x", session="2", label="L")).text == "by label"
    assert (await ask(model, "x", session="3")).text == "anybody"
    with pytest.raises(ModelError):
        await ask(model, "x", "scan later", session="4")
    assert (await ask(model, "please scan", session="5")).text == "by prompt"


async def test_scripts_with_equal_keys_serve_one_session_each() -> None:
    model = ScriptedModel()
    model.script(prompt("scan"), text("first"))
    model.script(prompt("scan"), text("second"))
    assert [(await ask(model, "scan", session=id)).text for id in ("b", "a")] == ["first", "second"]
    model.check()


async def test_a_script_for_every_session_gives_each_its_own_replies() -> None:
    model = ScriptedModel()
    model.script(prompt("work"), text("1"), text("2"), every=True)
    assert [(await ask(model, "work", session=id)).text for id in "abab"] == ["1", "1", "2", "2"]
    model.check()


async def test_values_come_from_the_request() -> None:
    def follow(seen: SeenRequest) -> Reply:
        return text(f"seen {len(seen.messages)}")

    model = ScriptedModel(
        calls(call("send", to=lambda r: r.find(r"id=(\w+)"), nested={"a": [lambda r: r.number]})), follow
    )
    message = await ask(model, "id=one", "id=two")
    assert message.calls[0].arguments == '{"to":"two","nested":{"a":[1]}}'
    assert (await ask(model)).text == "seen 1"


async def test_a_value_that_cannot_be_found_fails_the_request_and_the_check() -> None:
    model = ScriptedModel(text(lambda r: r.find("nowhere")))
    with pytest.raises(ModelError, match="nothing matches 'nowhere'"):
        await ask(model)
    with pytest.raises(AssertionError, match="did not suit its script"):
        model.check()


async def test_text_streams_in_several_chunks_that_make_the_whole() -> None:
    model = ScriptedModel(text("abcdefg", reasoning="hm"))
    chunks: list[object] = []
    asked = request(model)
    await model.stream(asked, (), chunks.append)
    assert [type(c).__name__ for c in chunks].count("TextDelta") == 3
    assert type(chunks[-1]).__name__ == "Finish"


@pytest.mark.parametrize(
    ("reply", "finish", "words"),
    [(text("a"), "stop", "a"), (refuse("no"), "content-filter", "no"), (truncated("ha", call("x")), "length", "ha")],
)
async def test_each_reply_ends_in_its_own_way(reply: Reply, finish: str, words: str) -> None:
    model, assembler = ScriptedModel(reply.using(Usage(input_tokens=3, requests=1))), Assembler()
    asked = request(model)
    await model.stream(asked, (), assembler.feed)
    assert (assembler.finish, assembler.message().text, assembler.message().calls) == (finish, words, ())
    assert assembler.usage == Usage(input_tokens=3, requests=1)


@pytest.mark.parametrize(("reply", "kind"), [(fail("server", status=500), "server"), (cut("half"), "transport")])
async def test_failures_raise_after_what_was_streamed(reply: Reply, kind: str) -> None:
    model, assembler = ScriptedModel(text("so ").then(reply), text("ok")), Assembler()
    asked = request(model)
    body = model.encode(asked)
    with pytest.raises(ModelError) as failure:
        await model.stream(asked, body, assembler.feed)
    assert failure.value.kind == kind
    assert assembler.message().text.startswith("so ")
    await model.stream(asked, body, assembler.feed)
    assert [(seen.attempt, seen.state) for seen in model.requests()] == [(1, "failed"), (2, "answered")]


async def test_a_cancelled_request_counts_as_aborted() -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("never")))
    async with anyio.create_task_group() as group:
        group.start_soon(ask, model)
        await gate.wait_reached()
        with pytest.raises(AssertionError, match="still running"):
            model.check()
        group.cancel_scope.cancel()
    assert [seen.state for seen in model.requests()] == ["aborted"]
    model.check()


async def test_equal_requests_have_equal_bytes_and_others_do_not() -> None:
    model = ScriptedModel()
    assert model.encode(request(model, "a")) == model.encode(request(model, "a"))
    assert model.encode(request(model, "a")) != model.encode(request(model, "b"))
    assert b'"role":"user"' in b"".join(model.encode(request(model, "a")))


async def test_a_request_is_recorded_as_it_was_sent() -> None:
    model = ScriptedModel(calls(call("echo", words="x")), text("ok"))
    async with scripted_host(model, tools=[echo]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        first, second = model.requests("R")
        assert (first.session_id, first.label, first.tool_names, first.users) == (agent.id, "R", ("echo",), ("go",))
        assert [type(m).__name__ for m in second.messages] == ["UserMessage", "AssistantMessage", "ToolMessage"]
        assert second.text == 'go\n\necho {"words":"x"}\nx'
        assert second.results == second.new == ("x",)
        assert model.requests(agent.id) == model.requests()
