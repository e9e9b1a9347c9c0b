"""What a client of ACP was told, as lines of text for people, session by session."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.base.json import JSON, JSONObject

__all__ = ["Told"]


class Told:
    """Lines of each session in their order, and those that were not shown yet."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lines: dict[str, list[str]] = {root: []}
        self._message: dict[str, tuple[str, JSON]] = {}
        """Which message the last line of a session belongs to, by kind and id."""

    def note(self, line: str) -> None:
        """A line of the root's that came from no update."""
        self._add(self._root, line)

    def update(self, session: str, update: JSONObject) -> None:
        """The client was told so. Raises: AssertionError for what comes before its session was announced."""
        match update:
            case {"sessionUpdate": "subagent_update", "sessionId": str(child)}:
                if child not in self._lines:
                    self._lines[child] = []
                    self._add(child, f"announced by {session}: {update.get('title')}")
                if "state" in update:
                    self._add(child, f"state: {_state(update['state'])}")
            case {"sessionUpdate": "session_message"} if update["recipientSessionId"] != session:
                pass  # the other view of what its recipient is told
            case _:
                assert session in self._lines, f"{session} was not announced before {update}"
                self._shown(session, update)

    def _shown(self, session: str, update: JSONObject) -> None:
        match update:
            case {"sessionUpdate": str(kind), "messageId": id, "content": {"text": str(text)}}:
                if self._message.get(session) == (kind, id):
                    self._lines[session][-1] += text
                    return
                marks = {"user_message_chunk": "> ", "agent_thought_chunk": "(thinks) "}
                self._add(session, marks.get(kind, "") + text)
                self._message[session] = kind, id
            case {"sessionUpdate": "tool_call", "title": title}:
                self._add(session, f"call: {title} [{update.get('kind', 'other')}]")
            case {"sessionUpdate": "tool_call_update"}:
                words = " | ".join(_words(update.get("content")))
                self._add(session, f"call {update.get('status', 'goes on')}" + (f": {words}" if words else ""))
            case {"sessionUpdate": "session_message", "senderSessionId": sender, "content": content}:
                self._add(session, f"told by {sender}: {' | '.join(_words(content))}")
            case {"sessionUpdate": "session_info_update", "title": title}:
                self._add(session, f"title: {title}")
            case {"sessionUpdate": "current_mode_update", "currentModeId": mode}:
                self._add(session, f"mode: {mode}")
            case _:
                self._add(session, f"{update['sessionUpdate']}")

    def _add(self, session: str, line: str) -> None:
        self._message.pop(session, None)
        self._lines[session].append(line)

    def new_lines(self) -> list[str]:
        """What was not shown before: the root's lines, then those of each child below its id."""
        shown: list[str] = []
        for session, lines in self._lines.items():
            if lines and session != self._root:
                shown.append(f"{session}:")
            indent = "" if session == self._root else "  "
            shown.extend(f"{indent}{line}" for line in lines)
            lines.clear()
        self._message.clear()
        return shown


def _state(state: JSON) -> str:
    match state:
        case {"state": what, "stopReason": reason}:
            return f"{what} ({reason})"
        case {"state": what}:
            return f"{what}"
        case _:
            return "unknown"


def _words(content: JSON) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        match block:
            case {"text": str(text)} | {"content": {"text": str(text)}}:
                yield from text.splitlines()
            case {"type": "diff", "path": path}:
                yield f"change of {path}"
            case _:
                pass
