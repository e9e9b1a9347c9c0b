"""Named compositions: which plugins make up an agent, with the options that differ from their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BUNDLES"]

BUNDLES: Mapping[str, Mapping[str, Any]] = {
    "agent-core": {
        "persona": (
            "You are a capable agent that works for a user in a folder of their machine. Find out before you change "
            "anything, do what was asked and no more, check your work with the tools you have, and say plainly what "
            "you did, what you found and what remains open."
        ),
        "plugins": {
            "permissions": {},
            "sandbox": {},
            "output": {},
            "instructions": {},
            "skills": {},
            "files": {},
            "tasks": {},
            "shell": {},
            "subagent": {
                "background_mode": "continuable",
                "instances": [
                    {"provider": "fork", "tool_name": "subagent_fork", "background_mode": "one-shot"},
                ],
            },
            "agents": {},
            "report": {},
        },
    }
}
"""By name. `agent-core` is what the command line and the Python interface use."""
