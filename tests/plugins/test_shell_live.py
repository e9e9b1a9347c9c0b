"""What a command says while it runs, as whoever watches gets it."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import SessionId
from retinue.plugins.permissions import Permissions
from retinue.plugins.shell import shell_tools
from retinue.plugins.shell.background import background_exit_code
from retinue.plugins.shell.live import LiveText
from retinue.tools.secrets import Secrets
from retinue.tools.tool import CallKey, ToolContext
from tests.plugins.calls import StubCaller

SAID = "plain \x9b \x1b[31mred\x1b[0m é漢🚀 \x1b]0;title\x07\x1b]52;c;Y2xpcA==\x1b\\done\r50%\r100%\n\a\x1b"


def _told(pieces: list[bytes]) -> str:
    told: list[str] = []
    live = LiveText(told.append)
    for piece in pieces:
        live.add(piece)
    live.add(b"", is_last=True)
    assert "" not in told
    return "".join(told)


@given(st.lists(st.integers(0, len(SAID.encode())), max_size=12))
def test_wherever_output_is_cut_no_character_is_torn_and_no_sequence_for_a_terminal_gets_through(
    cuts: list[int],
) -> None:
    data = SAID.encode()
    places = [0, *sorted(cuts), len(data)]
    told = _told([data[a:b] for a, b in zip(places, places[1:], strict=False)])
    assert told == "plain \ufffd red é漢🚀 done\r50%\r100%\n\ufffd\ufffd"


@given(st.lists(st.binary(max_size=40)))
def test_whatever_comes_is_told_as_text_and_nothing_is_held_back_for_ever(pieces: list[bytes]) -> None:
    told = _told(pieces)
    assert "\x1b" not in told
    told.encode()


def test_an_escape_without_an_end_holds_back_a_bounded_part() -> None:
    told: list[str] = []
    live = LiveText(told.append)
    live.add(b"\x1b]" + b"x" * 1_000)
    assert len("".join(told)) > 900


def test_the_detail_of_an_ended_command_names_its_exit() -> None:
    named = {"exit code 0": 0, "exit code 130": 130, "ended by signal 9": -9}
    assert {words: background_exit_code(words) for words in named} == named
    assert {background_exit_code(words) for words in (None, "", "stopped (x)", "exit code 3; and more")} == {None}


async def test_secrets_are_taken_out_and_all_was_told_when_the_call_returns(tmp_path: Path) -> None:
    told: list[str] = []
    (bash,) = shell_tools(Permissions("full-access"), secrets=Secrets(["a-secret-value"]))
    key = CallKey(session_id=SessionId("s"), seq=1, index=0)
    caller = StubCaller(SessionId("s"), tmp_path)
    context = ToolContext(caller=caller, key=key, name="bash", call_id="c", turn=1, step=1, tell=told.append)
    await bash.body(context, {"command": "printf 'it is a-sec'; printf 'ret-value, end'"})
    assert "".join(told) == "it is [secret], end"
