"""A whole log breaks no rule, and each rule is found when it is broken."""

import pytest
from msgspec.structs import replace

from retinue.base.ids import MessageId, SessionId
from retinue.model.content import Source, Text, UserMessage
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    ApprovalDecided,
    Descriptor,
    EndSeed,
    Event,
    ExternalPermission,
    ExternalPrompt,
    Payload,
    RequestContext,
    RequestHeader,
    RequestHeaderChange,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolReturned,
    TurnResumed,
    TurnStart,
    WorkflowAgentEnd,
    WorkflowAgentStart,
    WorkflowEnd,
    WorkflowStart,
)
from retinue.session.invariants import tree_violations, violations
from retinue.session.rows import Delivery, StoredRow
from retinue.session.store import SessionRecord
from tests.session.logs import ended, log, reply, returned, row, said, started, whole_log

ROWS = [row("m1", turn=1), row("m2", turn=1), row("m3", turn=2)]


def rules(events: list[Event], rows: list[StoredRow] | None = None, *, quiescent: bool = False) -> list[str]:
    return [found.rule for found in violations(events, rows or [], quiescent=quiescent)]


def test_a_whole_log_breaks_no_rule() -> None:
    assert violations(whole_log(), ROWS, quiescent=True) == []


def test_every_beginning_of_a_whole_log_breaks_no_rule() -> None:
    events = whole_log()
    assert [rules(events[:length]) for length in range(len(events))] == [[]] * len(events)


def test_a_log_without_events_breaks_no_rule() -> None:
    assert violations([], [row("m1", "withdrawn"), row("m2", "pending")]) == []


BEGUN: tuple[Payload, ...] = (TurnStart(1), StepStart(1, 1), said("m1"))
ASKED: tuple[Payload, ...] = (*BEGUN, reply(1, 1, "a", "b"))
BOTH: tuple[Payload, ...] = (returned(1, 1, 0, "a"), returned(1, 1, 1, "b"))
SETTLED = ActivationEnd(epoch=1, outcome="completed")
RUN = WorkflowStart(turn=1, step=1, index=0, name="w")
HIRED = WorkflowAgentStart(index=0, id=SessionId("a1"), label="a")
GONE = WorkflowAgentEnd(index=0, id=SessionId("a1"), outcome="completed")
RAN = WorkflowEnd(turn=1, step=1, index=0, outcome="completed")
HELD = ApprovalAsked(id="q1", turn=1, step=1, index=0, call_id="a", name="look", rule="look")
ALLOWED = ApprovalDecided(id="q1", turn=1, step=1, index=0, verb="allow", by="user")
REJECTED = replace(ALLOWED, verb="reject")
PROMPTED = ExternalPrompt(turn=1, step=1, session="s")
PERMITTED = ExternalPermission(turn=1, step=1, title="t", verb="allow", by="user")
HEADER = RequestHeaderChange(RequestHeader(config={}), "initial")


@pytest.mark.parametrize(
    ("rule", "payloads"),
    [
        ("turn-nesting", (TurnStart(1), TurnStart(2))),
        ("turn-nesting", (ended(1),)),
        ("turn-nesting", (TurnStart(1), ended(2))),
        ("turn-nesting", (TurnStart(1), StepStart(1, 1), ended(1))),
        ("turn-nesting", (TurnStart(1), StepStart(2, 1))),
        ("turn-nesting", (StepStart(1, 1),)),
        ("turn-nesting", (TurnResumed(1, 1),)),
        ("turn-count", (TurnStart(2),)),
        ("turn-count", (TurnStart(1), ended(1), TurnStart(1))),
        ("turn-count", (TurnStart(1), ended(1), TurnStart(3))),
        ("step-nesting", (TurnStart(1), StepStart(1, 1), StepStart(1, 2))),
        ("step-nesting", (TurnStart(1), StepEnd(1, 1))),
        ("step-nesting", (TurnStart(1), StepStart(1, 1), StepEnd(1, 2))),
        ("step-nesting", (TurnStart(1), reply(1, 1))),
        ("step-nesting", (TurnStart(1), StepStart(1, 1), reply(1, 2))),
        ("step-count", (TurnStart(1), StepStart(1, 2))),
        ("step-count", (TurnStart(1), StepStart(1, 1), StepEnd(1, 1), StepStart(1, 1))),
        ("resumed-count", (TurnStart(1), TurnResumed(1, 2))),
        ("resumed-count", (TurnStart(1), TurnResumed(1, 1), TurnResumed(1, 1))),
        ("resumed-count", (TurnStart(1), TurnResumed(1, 1), StepStart(1, 1), StepEnd(1, 1), TurnResumed(1, 2))),
        ("one-reply", (*BEGUN, reply(1, 1), reply(1, 1))),
        ("call-has-result", (*ASKED, returned(1, 1, 1, "b"), StepEnd(1, 1))),
        ("one-result", (*ASKED, *BOTH, returned(1, 1, 0, "a"))),
        ("call-was-asked-for", (*ASKED, returned(1, 1, 2, "c"))),
        ("call-was-asked-for", (*ASKED, returned(1, 1, -1, "b"))),
        ("call-was-asked-for", (*BEGUN, returned(1, 1, 0, "a"))),
        ("call-was-asked-for", (*BEGUN, started(1, 1, 0, "a"))),
        ("call-matches", (*ASKED, returned(1, 1, 0, "b"))),
        ("call-matches", (*ASKED, started(1, 1, 1, "a"))),
        ("call-matches", (*ASKED, started(1, 1, 0, "a", "touch"))),
        ("call-starts-once", (*ASKED, started(1, 1, 0, "a"), started(1, 1, 0, "a"))),
        ("call-starts-once", (*ASKED, returned(1, 1, 0, "a"), started(1, 1, 0, "a"))),
        ("step-nesting", (*ASKED, *BOTH, StepEnd(1, 1), returned(1, 1, 0, "a"))),
        ("step-nesting", (*ASKED, *BOTH, StepEnd(1, 1), HELD)),
        ("step-nesting", (*ASKED, HELD, *BOTH, StepEnd(1, 1), ALLOWED)),
        ("call-was-asked-for", (*ASKED, replace(HELD, index=2))),
        ("call-matches", (*ASKED, replace(HELD, call_id="b"))),
        ("call-matches", (*ASKED, replace(HELD, name="touch"))),
        ("asked-once", (*ASKED, HELD, replace(HELD, id="q2"))),
        ("asked-before-start", (*ASKED, started(1, 1, 0, "a"), HELD)),
        ("asked-before-start", (*ASKED, returned(1, 1, 0, "a"), HELD)),
        ("held-until-allowed", (*ASKED, HELD, started(1, 1, 0, "a"))),
        ("held-until-allowed", (*ASKED, HELD, REJECTED, started(1, 1, 0, "a"))),
        ("decided-after-asked", (*ASKED, ALLOWED)),
        ("decided-after-asked", (*ASKED, HELD, replace(ALLOWED, id="q2"))),
        ("decided-after-asked", (*ASKED, HELD, replace(ALLOWED, index=1))),
        ("decided-once", (*ASKED, HELD, ALLOWED, ALLOWED)),
        ("decided-once", (*ASKED, HELD, REJECTED, ALLOWED)),
        ("decided-while-open", (*ASKED, HELD, returned(1, 1, 0, "a"), ALLOWED)),
        ("step-nesting", (TurnStart(1), PROMPTED)),
        ("step-nesting", (TurnStart(1), PERMITTED)),
        ("message-enters-once", (*BEGUN, said("m1"))),
        ("message-in-turn", (said("m1"),)),
        ("request-in-turn", (HEADER,)),
        ("request-in-turn", (RequestContext("local", "small"),)),
        ("seed-closed", (TurnStart(1), EndSeed())),
        ("activation-count", (ActivationStart(2),)),
        ("activation-count", (ActivationStart(1), SETTLED, ActivationStart(1))),
        ("activation-nesting", (ActivationStart(1), ActivationStart(2))),
        ("activation-nesting", (SETTLED,)),
        ("activation-nesting", (ActivationStart(1), SETTLED, SETTLED)),
        ("activation-nesting", (ActivationStart(1), TurnStart(1), SETTLED)),
        ("step-nesting", (TurnStart(1), RUN)),
        ("call-was-asked-for", (*ASKED, replace(RUN, index=2))),
        ("workflow-in-call", (*ASKED, *BOTH, RUN)),
        ("workflow-count", (*ASKED, RUN, RUN)),
        ("workflow-nesting", (*ASKED, RAN)),
        ("workflow-nesting", (*ASKED, HIRED)),
        ("workflow-nesting", (*ASKED, RUN, RAN, HIRED)),
        ("workflow-nesting", (*ASKED, RUN, HIRED, RAN)),
        ("workflow-agent-once", (*ASKED, RUN, HIRED, HIRED)),
        ("workflow-agent-once", (*ASKED, RUN, GONE)),
        ("workflow-agent-once", (*ASKED, RUN, HIRED, GONE, GONE)),
    ],
)
def test_a_broken_rule_is_found_once(rule: str, payloads: tuple[Payload, ...]) -> None:
    found = violations(log(*payloads))

    assert [violation.rule for violation in found] == [rule]
    assert found[0].seq is not None
    assert rule in str(found[0])


def test_a_workflow_may_run_again_and_wait_for_the_same_agents() -> None:
    again = replace(RUN, n=2)
    assert (
        violations(log(*ASKED, RUN, HIRED, GONE, HIRED, again, HIRED, GONE, RAN, replace(RUN, n=3), RAN, *BOTH)) == []
    )


@pytest.mark.parametrize(
    "payloads",
    [
        (HELD, started(1, 1, 1, "b"), ALLOWED, started(1, 1, 0, "a"), *BOTH),
        (HELD, REJECTED, *BOTH),
        (HELD, *BOTH),
        (HELD, replace(HELD, id="q2", index=1, call_id="b"), replace(ALLOWED, id="q2", index=1), REJECTED, *BOTH),
    ],
    ids=["allowed", "rejected", "withdrawn by its result", "two answered in the other order"],
)
def test_a_call_may_be_asked_about_before_it_starts(payloads: tuple[Payload, ...]) -> None:
    assert rules(log(*ASKED, *payloads, StepEnd(1, 1), ended(1)), quiescent=True) == []


def test_a_gap_and_a_double_seq_are_found() -> None:
    events = whole_log()
    assert rules([*events[:-1], Event(len(events), 0, events[-1].data)]) == ["contiguous"]
    assert rules([events[0], Event(0, 0, events[1].data), *events[2:]]) == ["contiguous"]


def test_the_same_wire_id_may_come_again() -> None:
    events = log(*ASKED, *BOTH, StepEnd(1, 1), StepStart(1, 2), reply(1, 2, "a", "a"), returned(1, 2, 0, "a"))
    assert rules(events) == []


def test_a_turn_may_be_resumed_again_after_each_finished_step() -> None:
    resumed = (TurnResumed(1, 1), TurnResumed(1, 2), StepStart(1, 1), TurnResumed(1, 3), StepEnd(1, 1))
    assert rules(log(TurnStart(1), *resumed, TurnResumed(1, 1), ended(1))) == []


def test_header_and_context_belong_into_a_turn() -> None:
    assert rules(log(TurnStart(1), HEADER, RequestContext("local", "small"))) == []


def test_messages_of_a_seed_need_no_turn() -> None:
    assert rules(log(said("m1"), EndSeed(), TurnStart(1))) == []
    assert rules(log(said("m1"), EndSeed(), said("m2"))) == ["message-in-turn"]


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("row-once", [*ROWS, row("m1", turn=1)]),
        ("entered-is-claimed", [row("m1", "pending"), *ROWS[1:]]),
        ("entered-is-claimed", [row("m1", "withdrawn"), *ROWS[1:]]),
        ("claimed-by-turn", [row("m1", turn=2), *ROWS[1:]]),
        ("claimed-by-turn", [*ROWS, row("m4", turn=3)]),
        ("claimed-by-turn", [*ROWS, row("m4", turn=None)]),
    ],
)
def test_a_row_that_disagrees_with_the_log_is_found(rule: str, rows: list[StoredRow]) -> None:
    assert rules(whole_log(), rows) == [rule]


def test_a_claimed_row_may_be_missing_only_where_its_turn_has_ended() -> None:
    rejected = log(TurnStart(1), ended(1))
    assert rules(rejected, [row("m1", turn=1)]) == []
    assert rules(rejected[:1], [row("m1", turn=1)]) == ["claimed-enters"]


def test_a_quiet_session_has_no_open_turn_and_no_message_that_wakes() -> None:
    events = whole_log()
    assert rules(events[:-1], ROWS) == []
    assert rules(events[:-1], ROWS, quiescent=True) == ["closed"]
    assert rules(events, [*ROWS, row("m4", "pending")], quiescent=True) == ["closed"]
    waiting = [row("m4", "pending", parked=True), row("m5", "pending", wake=False), row("m6", "withdrawn")]
    assert rules(events, [*ROWS, *waiting], quiescent=True) == []


def test_activations_follow_each_other_and_are_settled_when_all_is_quiet() -> None:
    again = (ActivationStart(2), ActivationEnd(epoch=2, outcome="error"))
    events = log(ActivationStart(1), TurnStart(1), ended(1), SETTLED, *again)
    assert rules(events, quiescent=True) == []
    assert rules(events[:-1]) == []
    assert rules(events[:-1], quiescent=True) == ["closed"]


def test_one_fault_does_not_hide_the_next() -> None:
    events = log(TurnStart(1), TurnStart(2), StepStart(2, 1), reply(2, 1, "a"), StepEnd(2, 1), ended(2), HEADER)
    assert rules(events) == ["turn-nesting", "call-has-result", "request-in-turn"]


PARENT, CHILD = SessionId("parent"), SessionId("child")


def family(child: list[Event], *sent: tuple[str, str]) -> list[SessionRecord]:
    """A parent with these rows (kind and id, in order) from a child with this log."""
    rows = [
        StoredRow(
            delivery=Delivery(
                session_id=PARENT,
                message=UserMessage(MessageId(id), (Text("x"),), Source(kind=kind, sender_session_id=CHILD)),
                target="next-turn",
                wake=True,
                accepted_at=0,
            ),
            order=order,
        )
        for order, (kind, id) in enumerate(sent)
    ]
    header = SessionHeader(id=CHILD, created_at=0, parent_session=PARENT, origin="subagent", delegation_depth=1)
    return [
        SessionRecord(header=SessionHeader(id=PARENT, created_at=0), events=[], rows=rows),
        SessionRecord(header=header, events=child, rows=[]),
    ]


def reported(id: str, turn: int = 1) -> ToolReturned:
    return replace(returned(turn, 1, 0, "a"), meta={"message_id": id})


TWICE = log(
    ActivationStart(1), reported("r1"), ActivationEnd(epoch=1, outcome="completed"),
    ActivationStart(2), reported("r2"), ActivationEnd(epoch=2, outcome="completed"),
)  # fmt: skip
S1, S2 = ("subagent-settled", "s1"), ("subagent-settled", "s2")
R1, R2 = ("subagent-report", "r1"), ("subagent-report", "r2")


@pytest.mark.parametrize(
    ("rule", "sent"),
    [
        (None, (R1, S1, R2, S2)),
        ("one-settlement-each", (R1, S1)),
        ("one-settlement-each", (R1, S1, R2, S2, ("subagent-settled", "s3"))),
        ("report-before-settlement", (S1, R1, R2, S2)),
        ("report-before-settlement", (R1, R2, S1, S2)),
        ("report-before-settlement", (R1, S1, S2, R2)),
    ],
)
def test_between_parent_and_child_each_settlement_is_told_once_and_after_its_reports(
    rule: str | None, sent: tuple[tuple[str, str], ...]
) -> None:
    found = tree_violations(family(TWICE, *sent))
    assert {violation.rule for _, violation in found} == ({rule} if rule else set())


def test_a_settlement_that_found_no_parent_is_told_nobody() -> None:
    events = log(ActivationStart(1), ActivationEnd(epoch=1, outcome="completed", undelivered=True))
    assert tree_violations(family(events)) == []


def test_a_settlement_of_a_child_that_does_not_exist_is_found() -> None:
    parent, _ = family(TWICE, S1)
    assert [violation.rule for _, violation in tree_violations([parent])] == ["settlement-has-child"]


def test_a_continuable_child_has_turns_in_its_activations_only_and_a_fork_of_it_may_copy_them() -> None:
    made = Descriptor(mode="continuable", provider="spawn")
    turn = (TurnStart(1), ended(1))
    assert rules(log(made, *turn)) == ["turn-in-activation"]
    assert rules(log(made, ActivationStart(1), *turn, ActivationEnd(epoch=1, outcome="completed"))) == []
    assert rules(log(made, *turn, EndSeed(), Descriptor(mode="one-shot", provider="fork"))) == []
