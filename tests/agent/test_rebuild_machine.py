"""Any conversation over the real loop: every request of every log, made again, is the bytes that the model was sent.

Each example is a list of acts: turns with any kind of reply, changes of the header, forks, aborts, and new processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.agent.phase import Cause
from retinue.agent.rebuild import rebuilt
from retinue.base.ids import SessionId
from retinue.base.json import JSON
from retinue.host.host import Host
from retinue.model.adapters.anthropic_encoder import AnthropicEncoder
from retinue.model.adapters.encoders import encoder_again
from retinue.model.adapters.openai_encoder import ChatEncoder
from retinue.model.adapters.quirks import Quirks
from retinue.model.encoding import Encoder
from retinue.plugins import permissions, report, subagent
from retinue.prompt.sections import Section
from retinue.session.events import AssistantReply, Event, StepStart, TurnResumed
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import all_sessions, resume_agent, scripted_host, start_agent
from retinue.testing.script import Reply, call, calls, fail, refuse, text, truncated
from tests.agent.test_rebuild import AT_ONCE
from tests.support.delegation import STOCK
from tests.support.tools import echo
from tests.support.wired import WiredModel

ROOT = SessionId("root")
WORDS = st.sampled_from(["", "a", "ä \u2028", "two\nlines", '{"a": 1}', "\U0001f600"])
TEXTS = st.sampled_from(["a", "ä \u2028", "two\nlines", "\U0001f600"])
VALUES: st.SearchStrategy[JSON] = st.sampled_from([1, 1.0, True, None, "x", {"b": [1], "a": 2}])
ARGUMENTS = st.sampled_from(['{"words": "x"}', "{bad", "", "null", '{"words": 1}', "[1]", '{"words": "\\ud83d"}'])
ANSWERS: st.SearchStrategy[list[Reply]] = st.one_of(
    st.builds(lambda said, thought: [text(said, reasoning=thought)], WORDS, st.none() | TEXTS),
    st.builds(lambda raws, said: [calls(*(call("echo", raw=raw) for raw in raws), text=said)],
              st.lists(ARGUMENTS, min_size=1, max_size=3), WORDS),
    st.builds(lambda said: [text(said).then(fail("server"))], WORDS),
    st.builds(lambda: [calls(call("missing"))]),
    st.builds(lambda: [fail("bad-request")]),
    st.builds(lambda said: [refuse(said)], WORDS),
    st.builds(lambda said: [truncated(said, call("echo", raw="{"))], WORDS),
)  # fmt: skip
Act: TypeAlias = tuple[str, Any]
ACTS: st.SearchStrategy[list[Act]] = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.lists(ANSWERS, max_size=4)),
        st.tuples(st.just("options"), st.dictionaries(st.sampled_from(["a", "b", "temperature"]), VALUES)),
        st.tuples(st.just("ceiling"), st.none() | st.integers(1, 9)),
        st.tuples(st.sampled_from(["prompt", "tool", "fork", "abort", "process", "crash"]), st.none()),
    ),
    max_size=12,
)
QUIRKS = st.builds(
    Quirks,
    stream=st.booleans(),
    system_role=st.sampled_from(["system", "developer"]),
    max_tokens_field=st.sampled_from(["max_tokens", "max_completion_tokens"]),
    reasoning_field=st.sampled_from([None, "reasoning", "reasoning_content"]),
    images=st.booleans(),
)
ENCODERS: st.SearchStrategy[Encoder] = st.one_of(
    st.builds(ChatEncoder, st.just("p"), QUIRKS),
    st.builds(AnthropicEncoder, st.just("p"), is_cached=st.booleans(), output_ceiling=st.just(len)),
)


@given(ACTS, ENCODERS)
@settings(max_examples=60, deadline=None)
def test_every_logged_request_is_made_again_as_it_was_sent(acts: list[Act], encoder: Encoder) -> None:
    async def live() -> None:
        with anyio.fail_after(20):
            await _Life(acts, encoder).live()

    anyio.run(live)


class _Life:
    def __init__(self, acts: list[Act], encoder: Encoder) -> None:
        self.acts = acts
        self.model = WiredModel(encoder=encoder)
        self.script = self.model.script(ROOT)
        self.home = MemoryHome()
        self.clock = FakeClock()

    async def live(self) -> None:
        at, is_new = 0, True
        while True:
            store = MemoryStore(self.clock, self.home)
            async with (
                scripted_host(
                    self.model, store=store, clock=self.clock, options=AT_ONCE, at_rest=False, errors_logged=True
                ) as host,
                permissions.plugin(host, permissions.PermissionsConfig()),
                subagent.plugin(host, STOCK),
                report.plugin(host, report.ReportConfig()),
            ):
                self.undo: dict[str, Callable[[], object]] = {"tool": host.tools.add(echo)}
                self.host = host
                self.agent = await (start_agent(host, id=ROOT) if is_new else resume_agent(host, ROOT))
                is_new = False
                while at < len(self.acts):
                    act, at = self.acts[at], at + 1
                    if act[0] == "process" or act[0] == "crash":
                        if act[0] == "crash":
                            await self.cut_off(lambda: None)
                        break
                    await self.do(act)
                else:
                    await self.quiet()
                    await self.check(host)
                    await host.suspend()
                    return
                await host.suspend()

    async def quiet(self) -> None:
        await self.host.require(CONTINUATIONS, needed_by="a test").wait_quiet(self.agent)

    async def do(self, act: Act) -> None:
        match act:
            case ("turn", answers):
                # What fails for good ends the turn, and what was left for it would answer another one.
                self.script.add(*(reply for answer in answers for reply in answer))
                self.agent.follow_up("go on")
                await self.settle()
            case ("options", body):
                self.agent.options = replace(self.agent.options, body=body)
            case ("ceiling", most):
                self.agent.options = replace(self.agent.options, max_tokens=most)
            case ("fork", _):
                self.model.script("F", calls(call("echo", words="y")), text("seen"))
                self.script.add(calls(call("subagent_fork", description="F", prompt="look back")))
                self.agent.follow_up("fork")
                await self.settle()
            case ("abort", _):
                await self.cut_off(lambda: self.agent.cancel(Cause("user")))
                await self.settle()
            case ("tool", _):
                self.toggle("tool", lambda: self.host.tools.add(echo))
            case _:
                section = Section(name="more", order=1, text="Be brief.")
                self.toggle("prompt", lambda: self.host.prompt.add(section))

    def toggle(self, name: str, add: Callable[[], Callable[[], object]]) -> None:
        undo = self.undo.pop(name, None)
        if undo is not None:
            undo()
        else:
            self.undo[name] = add()

    async def cut_off(self, end: Callable[[], None]) -> None:
        """A request is on its way and has said something when `end` is called."""
        await self.settle()
        gate = Gate()
        self.script.add(text("so far").hold_after(gate))
        self.agent.follow_up("wait")
        await gate.wait_reached(1)
        end()

    async def settle(self) -> None:
        """All that was scripted is used up: as many turns as that takes, each of them answered."""
        while True:
            await self.quiet()
            if self.script.used >= len(self.script.replies):
                return
            self.agent.follow_up("and?")

    async def check(self, host: Host) -> None:
        await host.sessions.writer.committed()
        for summary in await all_sessions(host.sessions.store):
            events = (await host.sessions.store.read(summary.header.id)).events
            sent = {b"".join(request.body) for request in self.model.requests()}
            for event in events:
                if isinstance(event.data, StepStart):
                    found = rebuilt(events, event.seq, encoder_again)
                    if found.verdict == "unknown" and _was_given_up(events, event.data):
                        continue
                    assert found.verdict == "identical", found.reason
                    assert b"".join(found.body or ()) in sent


def _was_given_up(events: Sequence[Event], step: StepStart) -> bool:
    """Its processes ended again and again before a reply, until the turn was ended as making no progress."""
    resumed = sum(isinstance(event.data, TurnResumed) and event.data.turn == step.turn for event in events)
    replied = any(
        isinstance(event.data, AssistantReply) and (event.data.turn, event.data.step) == (step.turn, step.step)
        for event in events
    )
    return resumed >= 2 and not replied
