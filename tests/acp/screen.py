"""What an editor shows of tool calls: a model of a client that keeps to the protocol, and has terminals as Zed does."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["TERMINALS", "Screen", "Shown"]

TERMINALS = {"_meta": {"terminal_output": True}}


@dataclass
class Shown:
    """A terminal that runs nothing."""

    cwd: str
    text: str = ""
    exit: dict[str, Any] | None = None


@dataclass
class Screen:
    """The calls of one session as they are shown, by id, and the terminals in them."""

    calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    terminals: dict[str, Shown] = field(default_factory=dict[str, Shown])

    def take(self, update: dict[str, Any], key: str = "terminal_output") -> None:
        """The update is shown."""
        kind, meta = update["sessionUpdate"], update.get("_meta") or {}
        if kind not in ("tool_call", "tool_call_update"):
            return
        id = update["toolCallId"]
        if kind == "tool_call":
            assert id not in self.calls
            self.calls[id] = {}
            if "terminal_info" in meta:
                info = meta["terminal_info"]
                assert info["terminal_id"] not in self.terminals
                self.terminals[info["terminal_id"]] = Shown(info["cwd"])
        else:
            assert "terminal_info" not in meta, "terminals are made by new calls alone"
        self.calls[id] |= update
        for part in update.get("content") or ():
            if part["type"] == "terminal":
                assert part["terminalId"] in self.terminals
        if key in meta:
            shown = self.terminals[meta[key]["terminal_id"]]
            assert shown.exit is None, "nothing runs in it any more"
            shown.text += meta[key]["data"]
        if "terminal_exit" in meta:
            exit = dict(meta["terminal_exit"])
            shown = self.terminals[exit.pop("terminal_id")]
            assert shown.exit is None
            shown.exit = exit

    @classmethod
    def of(cls, updates: list[dict[str, Any]], key: str = "terminal_output") -> "Screen":
        """After all of them."""
        screen = cls()
        for update in updates:
            screen.take(update, key)
        return screen

    def terminal(self, call: dict[str, Any]) -> Shown:
        """The one in which the call is shown."""
        (part,) = call["content"]
        assert part["type"] == "terminal"
        return self.terminals[part["terminalId"]]
