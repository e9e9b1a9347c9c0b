"""A fork pays for a shared prompt prefix, so its requests begin with the bytes of its parent's."""

from retinue.model.adapters.openai_chat import openai_chat_client
from retinue.model.client import ModelRequest
from retinue.plugins.subagent import InstanceConfig, SubagentConfig, ToolFilterConfig
from retinue.session.store import SessionStore
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import call, calls, text
from tests.support.delegation import FORK, STOCK, children, delegating, quiet
from tests.support.tools import echo


def _prefix(seen: SeenRequest, messages: int) -> bytes:
    """The body up to and with so many messages, as the server gets it."""
    return _body(seen, messages).partition(b'],"tools"')[0]


def _body(seen: SeenRequest, messages: int | None = None) -> bytes:
    client = openai_chat_client(provider="p", base_url="http://localhost/v1")
    transcript = client.transcript()
    transcript.extend(seen.messages[:messages])
    made = ModelRequest(
        model=seen.model,
        system=seen.system,
        tools=seen.tools,
        transcript=transcript,
        max_tokens=seen.max_tokens,
        options=seen.options,
    )
    return b"".join(client.encode(made))


def _tail(body: bytes) -> bytes:
    return body.rpartition(b'],"tools"')[2]


async def _parent_and_fork(store: SessionStore, config: SubagentConfig = STOCK) -> tuple[SeenRequest, SeenRequest]:
    """The request of the agent `R` in the turn that delegates, and the first request of its fork."""
    model = ScriptedModel()
    r = model.script("R", calls(call("echo", words="x")), text("T1"))
    r.add(calls(call("subagent_fork", description="F", prompt="look back")), text("ok"))
    model.script("F", text("seen"))
    async with delegating(model, store, config, tools=[echo]) as host:
        agent = await start_agent(host)
        for words in ("first", "second"):
            await agent.follow_up(words)
            await quiet(host, agent)
    return model.requests("R")[2], model.requests("F")[0]


async def test_the_request_of_a_fork_begins_with_the_bytes_of_its_parents(store: SessionStore) -> None:
    parent, fork = await _parent_and_fork(store)
    seed = 4  # first, echo(), its result, T1
    assert _prefix(parent, seed) == _prefix(fork, seed)
    assert _body(fork).startswith(_prefix(fork, seed))
    assert _body(parent).startswith(_prefix(parent, seed))
    assert _tail(_body(fork)) == _tail(_body(parent))
    assert fork.tools is parent.tools


async def test_only_what_is_configured_sets_a_fork_apart(store: SessionStore) -> None:
    own = InstanceConfig(
        provider="fork",
        tool_name="subagent_fork",
        persona="You look back.",
        tool_filter=ToolFilterConfig(allow=("echo",)),
    )
    config = SubagentConfig(background_mode="continuable", instances=(own,))
    parent, fork = await _parent_and_fork(store, config)
    assert fork.tool_names == ("echo",)
    assert fork.system.startswith("You look back.")
    assert fork.model == parent.model


async def test_a_fork_of_a_child_has_that_childs_persona_and_restriction_and_no_report(store: SessionStore) -> None:
    helper = InstanceConfig(
        tool_name="helper",
        background_mode="continuable",
        persona="You help.",
        tool_filter=ToolFilterConfig(deny=("subagent",)),
    )
    config = SubagentConfig(background_mode="continuable", instances=(FORK, helper))
    model = ScriptedModel()
    root = model.script("root", calls(call("helper", description="R", prompt="first")), text("ok"), text("noted"))
    r = model.script("R", text("T1"))
    model.script("F", text("seen"))
    async with delegating(model, store, config) as host:
        agent = await start_agent(host, "root")
        await agent.follow_up("first")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        root.add(calls(call("send_message", subagent_id=child, message="second")), text("ok"), text("noted"))
        r.add(calls(call("subagent_fork", description="F", prompt="look back")), text("ok"))
        await agent.follow_up("second")
        await quiet(host, agent)
    parent, fork = model.requests("R")[1], model.requests("F")[0]
    assert parent.system.startswith("You help.")
    assert set(parent.tool_names) - set(fork.tool_names) == {"report"}
    assert "subagent" not in fork.tool_names
    report = next(part for part in parent.system.split("\n\n") if "`report`" in part)
    assert fork.system == parent.system.replace(report, "").strip().replace("\n\n\n\n", "\n\n")
