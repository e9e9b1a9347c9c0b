"""What the runtime and the children say to a parent: settlement notices and reports, framed by provenance.

A child's words always stand inside a frame that names the child, and nothing inside can close the frame, so they never
read as the user's words or the runtime's.
"""

from __future__ import annotations

import re

from retinue.base.ids import MessageId, SessionId, derived_id
from retinue.model.content import Image, InputBlock, Source, Text, UserMessage
from retinue.subagent.outcome import Ending, Outcome

__all__ = ["framed", "report_message", "settlement_message"]

_FRAME = "child-message"
_TAG = re.compile(rf"<(?=\s*/?\s*{_FRAME})", re.IGNORECASE)
_SUMMARY_CHARS = 120

_WORDS: dict[Ending, str] = {
    "completed": "has finished and is idle until you send it more",
    "aborted": "was stopped before it finished",
    "max-tokens": "ran out of room for output before it finished",
    "refusal": "declined the task",
    "error": "failed",
    "timeout": "ran out of time before it finished",
    "over-budget": "used up its budget before it finished",
    "interrupted": "was interrupted by the end of its process",
}


def framed(child: SessionId, text: str) -> str:
    """`text` as the words of `child`: inside a frame that they cannot leave. Ends its line."""
    inner = _TAG.sub("&lt;", text).rstrip("\n")
    return f'<{_FRAME} from="{child}">\n{inner}\n</{_FRAME}>\n'


def _content(child: SessionId, lead: str, blocks: tuple[InputBlock, ...]) -> tuple[InputBlock, ...]:
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    images = tuple(block for block in blocks if isinstance(block, Image))
    return (Text(f"{lead}\n{framed(child, text)}" if text else f"{lead}\n"), *images)


def _name(child: SessionId, label: str | None) -> str:
    return f"{child} ({_one_line(label)})" if label else child


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY_CHARS else f"{line[: _SUMMARY_CHARS - 1]}…"


def settlement_message(
    child: SessionId,
    epoch: int,
    label: str | None,
    outcome: Outcome,
    closing: tuple[InputBlock, ...],
    parked: int,
) -> UserMessage:
    """The runtime's account of how an activation ended. Its id is the same for the same activation.

    First a line with the child's id and how it ended, then either a line that says there is no closing message, or a
    lead line and `closing`, the child's last words. Source: behaviour CN-04..CN-06.
    """
    words = _WORDS.get(outcome.ending, f"ended abnormally ({outcome.ending})")
    lines = [f"[notice] Agent {_name(child, label)} {words}."]
    if outcome.diagnostic and outcome.ending != "completed":
        lines.append(f"Reason: {' '.join(outcome.diagnostic.split())}")
    if parked:
        queued = "1 message is" if parked == 1 else f"{parked} messages are"
        lines.append(f"{queued} still queued for it; send_message resumes it with the oldest first.")
    if closing:
        lines.append("Its closing message:")
        content = _content(child, "\n".join(lines), closing)
    else:
        lines.append("There is no closing message.")
        content = (Text("\n".join(lines) + "\n"),)
    source = Source(
        kind="subagent-settled",
        form="notice",
        sender_session_id=child,
        summary=_one_line(f"{label or child} {words}"),
    )
    return UserMessage(MessageId(derived_id("settled", child, epoch)), content, source)


def report_message(id: MessageId, child: SessionId, label: str | None, output: str) -> UserMessage:
    """What a child says to its parent with the `report` tool. Source: behaviour CP-13."""
    content = _content(child, f"[report] Agent {_name(child, label)} reports:", (Text(output),))
    source = Source(
        kind="subagent-report",
        form="relay",
        sender_session_id=child,
        summary=_one_line(f"{label or child}: {output}"),
    )
    return UserMessage(id, content, source)
