"""Contract, part 4: what was written is read back, in the order of each listing, and damage stays where it is."""

from __future__ import annotations

import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import BadInput, CorruptSession, SessionNotFound, UnknownEvent
from retinue.model.content import AssistantMessage, Image, Reasoning, Text, ToolCall, ToolMessage, Usage
from retinue.session.events import (
    EVENT_TYPES,
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Descriptor,
    EndSeed,
    ErrorRecord,
    ExternalPermission,
    ExternalPrompt,
    Opaque,
    Payload,
    RequestContext,
    RequestHeader,
    RequestHeaderChange,
    SandboxMode,
    SessionHeader,
    StepEnd,
    StepStart,
    TaskEnded,
    TaskStarted,
    ToolFilter,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
    WorkflowAgentEnd,
    WorkflowAgentStart,
    WorkflowEnd,
    WorkflowStart,
    type_of,
)
from retinue.session.rows import Claim, Create, Hush, Park, Unpark, Withdraw
from retinue.session.store import SessionSummary
from tests.store.contract import Tree, append, header, insert, message
from tests.store.homes import Home

ROOT = SessionId("root")

EVERY_PAYLOAD: list[Payload] = [
    EndSeed(),
    TurnStart(1),
    TurnResumed(1, 2),
    StepStart(1, 1),
    message("m1"),
    RequestHeaderChange(
        RequestHeader(config={"temperature": 0.5}, system="Be kind. " * 300, tools=({"name": "look"},)), "initial"
    ),
    RequestHeaderChange(RequestHeader(config={}), "change"),
    RequestContext("local", "small", 8192),
    AssistantReply(
        turn=1,
        step=1,
        message=AssistantMessage(
            (Reasoning("Hm.", "proof"), Text("Yes."), Image("image/png", "aGk="), ToolCall("c", "look", '{"a":1}'))
        ),
        usage=Usage(10, 5, 2, 1, 1, 0.001),
    ),
    AssistantReply(turn=1, step=1, message=AssistantMessage(()), finish="length", interrupted=True),
    ToolStart(turn=1, step=1, index=0, call_id="c", name="look"),
    ApprovalAsked(id="q", turn=1, step=1, index=0, call_id="c", name="look", rule="ask look"),
    ApprovalDecided(id="q", turn=1, step=1, index=0, verb="allow", by="user", grants="ask look"),
    ApprovalDecided(id="q", turn=1, step=1, index=0, verb="reject", by="policy", words="no"),
    ToolReturned(
        turn=1,
        step=1,
        index=0,
        message=ToolMessage("c", (Text("No."),), True),
        error=ErrorRecord("NOT_FOUND", "no such thing"),
        concludes=True,
        meta={"lines": [1, 2, None], "deep": {"x": 1.5}},
    ),
    StepEnd(1, 1),
    TurnEnd(turn=1, reason="aborted", cause="user", detail="stop", error=ErrorRecord("X", "y"), parked=2),
    Descriptor(
        mode="continuable", provider="spawn", label="a", agent_model="small", tool_filter=ToolFilter(allow=("look",))
    ),
    SandboxMode("read-only", "user"),
    TaskStarted(task_id="bash-1", kind="bash", label="ls"),
    TaskEnded(task_id="bash-1", status="failed", detail="exit 1"),
    WorkflowStart(turn=1, step=1, index=0, name="survey", n=2),
    WorkflowAgentStart(index=0, id=SessionId("agent-1"), label="a", phase="first"),
    WorkflowAgentEnd(index=0, id=SessionId("agent-1"), outcome="error", detail="why"),
    WorkflowEnd(turn=1, step=1, index=0, outcome="failed", detail="why"),
    ActivationStart(1),
    ActivationEnd(epoch=1, outcome="completed", usage=Usage(input_tokens=3, requests=1), parked=2),
    ExternalPrompt(turn=1, step=1, session="there-1"),
    ExternalPermission(turn=1, step=1, title="run it", verb="allow", by="user", always=True),
    Opaque("future/thing", {"a": [1, "two", None, True]}),
]


class Reading:
    async def test_every_payload_is_read_back_as_it_was(self, home: Home) -> None:
        missing = EVENT_TYPES.keys() - {type_of(data) for data in EVERY_PAYLOAD}
        assert not missing, f"EVERY_PAYLOAD needs an example of {missing}"
        tree = await Tree.planted(home.open())
        op = append("root", 0, *EVERY_PAYLOAD)
        tree.commit(op)
        for store in (tree.store, home.open()):
            stored = await store.read(ROOT)
            assert stored.events == list(op.events)
            assert (stored.header, stored.root, stored.pending) == (header("root"), ROOT, [])

    async def test_every_field_of_a_header_is_read_back(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        full = SessionHeader(
            id=SessionId("child"),
            created_at=5,
            version=1,
            cwd="/a/b",
            parent_session=ROOT,
            seed_length=3,
            origin="subagent",
            delegation_depth=2,
        )
        tree.commit(Create(full, ROOT))
        stored = await tree.store.read(SessionId("child"))
        assert (stored.header, stored.root) == (full, ROOT)

    async def test_large_headers_of_many_sessions_are_read_back(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "c1", "c2", "c3")
        same = RequestHeaderChange(RequestHeader(config={}, system="x" * 5000), "initial")
        other = RequestHeaderChange(RequestHeader(config={}, system="y" * 5000), "initial")
        tree.commit(append("c1", 0, TurnStart(1), same, other), append("c2", 0, TurnStart(1), same))
        tree.commit(append("c3", 0, TurnStart(1), same, same))
        logs = [[event.data for event in (await tree.store.read(SessionId(f"c{i}"))).events[1:]] for i in (1, 2, 3)]
        assert logs == [[same, other], [same], [same, same]]

    async def test_what_does_not_exist_is_not_found(self, home: Home) -> None:
        store = home.open()
        for read in (store.read, store.read_rows, store.resolve):
            with pytest.raises(SessionNotFound, match="'nobody'"):
                await read(SessionId("nobody"))
        assert await store.summary(SessionId("nobody")) is None
        assert await store.roots() == []
        assert await store.children(ROOT) == []
        assert await store.owing(ROOT) == []

    # Summaries and listings.

    async def test_a_summary_counts_and_knows_the_open_turn(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        empty = SessionSummary(
            header=header("root"), root=ROOT, events=0, last_event_at=1000, open_turn=None, pending=0
        )
        assert await tree.store.summary(ROOT) == empty
        tree.commit(append("root", 0, TurnStart(1), StepStart(1, 1), time=7000), insert("root", "m1"))
        assert await tree.store.summary(ROOT) == SessionSummary(
            header=header("root"), root=ROOT, events=2, last_event_at=7001, open_turn=1, pending=1
        )
        tree.commit(append("root", 2, StepEnd(1, 1), time=8000), Claim(ROOT, (MessageId("m1"),), 1))
        assert await tree.store.summary(ROOT) == SessionSummary(
            header=header("root"), root=ROOT, events=3, last_event_at=8000, open_turn=1, pending=0
        )
        end = TurnEnd(turn=1, reason="completed")
        tree.commit(append("root", 3, end, TurnStart(2)))
        summary = await tree.store.summary(ROOT)
        assert summary is not None
        assert summary.open_turn == 2
        tree.commit(append("root", 5, TurnEnd(turn=2, reason="completed"), TurnStart(3), end))
        summary = await tree.store.summary(ROOT)
        assert summary is not None
        assert summary.open_turn is None

    async def test_roots_are_what_nobody_delegated_newest_first(self, home: Home) -> None:
        store = home.open()
        tree = await Tree.planted(store, "b")
        old, new = [Tree(store, await store.acquire(SessionId(id))) for id in ("c", "a")]
        old.commit(old.create("c", created_at=500))
        new.commit(new.create("a", created_at=1000))
        fork = Tree(store, await store.acquire(SessionId("fork")))
        fork.commit(Create(header("fork", "b", created_at=2000, delegated=False), fork.root))
        tree.commit(tree.create("child", "b", created_at=3000))
        assert [root.header.id for root in await store.roots()] == ["fork", "a", "b", "c"]

    async def test_children_are_listed_in_the_order_of_their_creation_whatever_the_clock_says(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(tree.create("c", "root", created_at=7), tree.create("b", "root", created_at=7))
        tree.commit(tree.create("a", "root", created_at=5), tree.create("grandchild", "a", created_at=1))
        assert [child.header.id for child in await tree.store.children(ROOT)] == ["c", "b", "a"]
        assert [child.header.id for child in await tree.store.children(SessionId("a"))] == ["grandchild"]

    async def test_a_prefix_resolves_to_the_one_session(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "session-1a", "session-1b", "session-2", "session-22", "other")
        store = tree.store
        assert await store.resolve("session-1a") == "session-1a"
        assert await store.resolve("o") == "other"
        assert await store.resolve("session-2") == "session-2"
        assert await store.resolve("session-22") == "session-22"
        for several in ("session-1", "session"):
            with pytest.raises(BadInput, match="session-1a"):
                await store.resolve(several)
        for none in ("session-3", "S", "session-1a ", "%", "session_1a", "o*", "session-1\udcff"):
            with pytest.raises(SessionNotFound):
                await store.resolve(none)

    async def test_an_empty_id_means_no_session_also_if_there_is_one_alone(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "only")
        with pytest.raises(BadInput, match="empty"):
            await tree.store.resolve("")

    # Who owes work.

    async def test_open_turns_owe_work_in_the_order_of_creation(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "z", "a")
        other = await Tree.planted(tree.store, "other")
        other.commit(append("other", 0, TurnStart(1)))
        tree.commit(*[append(id, 0, TurnStart(1)) for id in ("a", "root", "z")])
        assert await tree.store.owing(ROOT) == ["root", "z", "a"]
        tree.commit(append("z", 1, TurnEnd(turn=1, reason="completed")))
        assert await tree.store.owing(ROOT) == ["root", "a"]
        assert await tree.store.owing(SessionId("other")) == ["other"]

    async def test_an_open_activation_owes_work(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(append("child", 0, ActivationStart(1), TurnStart(1), TurnEnd(turn=1, reason="completed")))
        assert await tree.store.owing(ROOT) == ["child"]
        tree.commit(append("child", 3, ActivationEnd(epoch=1, outcome="completed")))
        assert await tree.store.owing(ROOT) == []
        tree.commit(append("child", 4, ActivationStart(2)), append("child", 5, TurnStart(2)))
        assert await tree.store.owing(ROOT) == ["child"]

    async def test_what_owes_work_is_as_before_when_a_batch_is_refused(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        bad = Claim(ROOT, (MessageId("nothing"),), 1)
        tree.refused(append("root", 0, TurnStart(1)), append("child", 0, ActivationStart(1)), bad)
        assert await tree.store.owing(ROOT) == []
        tree.commit(append("root", 0, TurnStart(1)), append("child", 0, ActivationStart(1)))
        end = TurnEnd(turn=1, reason="completed")
        tree.refused(append("root", 1, end), append("child", 1, ActivationEnd(epoch=1, outcome="completed")), bad)
        assert await tree.store.owing(ROOT) == ["root", "child"]

    async def test_runnable_messages_owe_work(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        child, ids = SessionId("child"), (MessageId("m1"),)
        tree.commit(insert("child", "m1"))
        assert await tree.store.owing(ROOT) == ["child"]
        tree.commit(Park(child, ids))
        assert await tree.store.owing(ROOT) == []
        tree.commit(Unpark(child))
        assert await tree.store.owing(ROOT) == ["child"]
        tree.commit(Hush(child, ids))
        assert await tree.store.owing(ROOT) == []
        tree.commit(insert("child", "m2"), insert("child", "m3"), Claim(child, (MessageId("m2"),), 1))
        assert await tree.store.owing(ROOT) == ["child"]
        tree.commit(Withdraw(child, (MessageId("m3"),), "cleared"))
        assert await tree.store.owing(ROOT) == []

    # Damage and strangers.

    async def test_an_unknown_event_refuses_its_session_alone(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(append("root", 0, TurnStart(1)), append("child", 0, TurnStart(1)))
        home.put_event(ROOT, 0, "future/thing", b"{}")
        with pytest.raises(UnknownEvent, match=r"'root'.*'future/thing'.*0"):
            await tree.store.read(ROOT)
        assert len((await tree.store.read(SessionId("child"))).events) == 1
        home.put_event(ROOT, 0, "future/thing", b'{"a":1}', ignorable=True)
        assert (await tree.store.read(ROOT)).events[0].data == Opaque("future/thing", {"a": 1})

    @pytest.mark.parametrize(
        ("type_name", "data", "ignorable"),
        [
            ("turn/start", b'{"turn":"one"}', False),
            ("turn/start", b'{"turn":1,"more":2}', False),
            ("turn/start", b'{"turn":', False),
            ("turn/start", b"\xff\xfe", False),
            ("turn/start", b"", False),
            ("future/thing", b"{", True),
        ],
    )
    async def test_an_event_that_cannot_be_decoded_fails_its_session_alone(
        self, home: Home, type_name: str, data: bytes, ignorable: bool
    ) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(append("root", 0, TurnStart(1)), append("child", 0, TurnStart(1)))
        home.put_event(ROOT, 0, type_name, data, ignorable=ignorable)
        with pytest.raises(CorruptSession, match="'root'.*event 0"):
            await tree.store.read(ROOT)
        await tree.store.read(SessionId("child"))
        assert [s.header.id for s in await tree.store.roots()] == ["root"]

    async def test_a_log_with_a_hole_is_corrupt(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(append("root", 0, TurnStart(1), StepStart(1, 1), StepEnd(1, 1)))
        home.lose_event(ROOT, 1)
        with pytest.raises(CorruptSession, match="'root'.*3 events"):
            await tree.store.read(ROOT)

    async def test_a_message_that_cannot_be_decoded_fails_its_session_alone(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(insert("root", "m1"), insert("child", "c1"))
        home.put_message(MessageId("m1"), b'{"role":"user"}')
        with pytest.raises(CorruptSession, match="'root'.*'m1'"):
            await tree.store.read(ROOT)
        with pytest.raises(CorruptSession, match="'root'.*'m1'"):
            await tree.store.read_rows(ROOT)
        assert len((await tree.store.read(SessionId("child"))).pending) == 1

    async def test_a_header_that_cannot_be_decoded_is_left_out_of_listings(
        self, home: Home, caplog: pytest.LogCaptureFixture
    ) -> None:
        tree = await Tree.planted(home.open(), "root", "one", "two")
        home.put_header(SessionId("one"), b'{"id":1}')
        with pytest.raises(CorruptSession, match="'one'.*header"):
            await tree.store.read(SessionId("one"))
        with pytest.raises(CorruptSession, match="'one'.*header"):
            await tree.store.summary(SessionId("one"))
        assert [child.header.id for child in await tree.store.children(ROOT)] == ["two"]
        assert "'one'" in caplog.text
