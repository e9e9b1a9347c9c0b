"""What calls say, bounded: whatever a command does, a client gets its end and a part of the rest."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.acp.calls import call_started
from retinue.acp.outputs import Outputs
from retinue.base.ids import SessionId
from retinue.model.content import Text, ToolCall, ToolMessage
from retinue.session.events import TaskEnded, ToolReturned
from tests.acp.screen import Screen

CALL = ToolCall("c", "bash", '{"command": "make", "run_in_background": true}')


class Watched:
    """The outputs of a session with one call, and what its client shows."""

    def __init__(self, *, has_terminals: bool) -> None:
        self.updates: list[dict[str, Any]] = []
        self.outputs = Outputs(SessionId("s"), self._take, "terminal_output" if has_terminals else None)
        terminal = self.outputs.terminal("call-1-0", "bash")
        self._take(call_started(1, 0, CALL, Path("/x"), terminal=terminal))

    def _take(self, update: Any) -> None:
        self.updates.append(msgspec.to_builtins(update))

    def begin(self) -> None:
        self.outputs.begun("call-1-0", "bash", live=True)

    def say(self, text: str) -> None:
        self.outputs.add("call-1-0", text)

    def returned(self, **meta: Any) -> None:
        message = ToolMessage("c", (Text("the result"),), False)
        event = ToolReturned(turn=1, step=1, index=0, message=message, concludes=False, meta=meta)
        self.outputs.returned(1, CALL, event, Path("/x"))

    @property
    def shown(self) -> str:
        screen = Screen.of(self.updates)
        (call,) = screen.calls.values()
        return "".join(t.text for t in screen.terminals.values()) or str(call["content"])

    @property
    def sent(self) -> int:
        return sum(len(str(update)) for update in self.updates)


@pytest.mark.parametrize("has_terminals", [True, False])
def test_however_much_a_command_says_each_look_costs_the_same_and_none_is_the_last(has_terminals: bool) -> None:
    watched = Watched(has_terminals=has_terminals)
    watched.begin()
    costs: list[int] = []
    for round in range(400):
        for _ in range(20):
            watched.say("x" * 4_999 + "\n")
        watched.say(f"round {round}\n")
        before = watched.sent
        watched.outputs.tell_new()
        costs.append(watched.sent - before)
        assert f"round {round}" in watched.shown[-40:]
        del watched.updates[1 : len(watched.updates) - 1]
    assert max(costs) < 17_000
    assert 3_000 < costs[-1] < 5_000
    assert "characters of output are not shown" in watched.shown


@pytest.mark.parametrize("has_terminals", [True, False])
def test_a_task_may_end_before_the_call_that_started_it_has_its_result(has_terminals: bool) -> None:
    watched = Watched(has_terminals=has_terminals)
    watched.begin()
    watched.say("quick")
    watched.outputs.task_ended(TaskEnded(task_id="bash-1", status="completed", detail="exit code 0"))
    watched.returned(task_id="bash-1")
    assert "quick" in watched.shown
    assert "[bash-1 completed: exit code 0]" in watched.shown
    exits = [terminal.exit for terminal in Screen.of(watched.updates).terminals.values()]
    assert exits == ([{"exit_code": 0, "signal": None}] if has_terminals else [])


def test_without_a_terminal_a_line_that_overwrites_itself_is_shown_as_it_is_at_last() -> None:
    watched = Watched(has_terminals=False)
    watched.begin()
    watched.say("1%\r50%\r99%\r\ndone\n")
    watched.outputs.tell_new()
    assert "```console\n99%\ndone\n```" in Screen.of(watched.updates).calls["call-1-0"]["content"][0]["content"]["text"]


def test_what_is_said_by_nobody_or_by_a_call_that_is_over_is_passed_over() -> None:
    watched = Watched(has_terminals=True)
    watched.say("before it began")
    watched.begin()
    watched.returned(exit_code=0)
    watched.say("after its end")
    watched.outputs.tell_new()
    assert "began" not in watched.shown
    assert "after" not in watched.shown
