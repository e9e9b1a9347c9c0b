"""Pieces of scripts for `scripted_server`."""

from typing import Any

__all__ = ["calls", "delegate", "says", "session"]


def session(name: str, match: str, *replies: dict[str, Any]) -> dict[str, Any]:
    """The replies to whoever was told what fits `match`."""
    return {"name": name, "match": match, "replies": list(replies)}


def says(text: str, **more: Any) -> dict[str, Any]:
    """A reply that is an answer."""
    return {"text": text, **more}


def calls(*called: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A reply that calls tools."""
    return {"calls": list(called), **more}


def delegate(name: str, **more: Any) -> dict[str, Any]:
    """A call that hands a task to the session whose `match` is `name`, and waits for its answer."""
    args = {"description": f"child {name}", "prompt": f"{name}: do your part", "run_in_background": False}
    return {"tool": "subagent", "args": args, **more}
