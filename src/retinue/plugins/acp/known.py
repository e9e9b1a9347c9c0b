"""Agents that are known to speak the Agent Client Protocol, and how each is started. Data only.

Source: the registry of the protocol (https://github.com/agentclientprotocol/registry) and the pages of the agents, as
of 2026-11-30. Each program is installed, and logged in to, by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["KNOWN", "Known"]


@dataclass(frozen=True, slots=True)
class Known:
    """How an agent is started, and what it is called."""

    title: str
    argv: tuple[str, ...]
    pass_env: tuple[str, ...] = ()
    """Variables with its own keys, which it gets where they are set."""


KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        "claude": Known("Claude Agent", ("claude-agent-acp",), ("ANTHROPIC_API_KEY",)),
        "codex": Known("Codex", ("codex-acp",), ("OPENAI_API_KEY", "CODEX_API_KEY")),
        "copilot": Known("GitHub Copilot", ("copilot", "--acp")),
        "cursor": Known("Cursor", ("cursor-agent", "acp"), ("CURSOR_API_KEY",)),
        "gemini": Known("Gemini CLI", ("gemini", "--acp"), ("GEMINI_API_KEY",)),
        "goose": Known("goose", ("goose", "acp")),
        "opencode": Known("OpenCode", ("opencode", "acp")),
        "qwen": Known("Qwen Code", ("qwen", "--acp")),
        "retinue": Known("Retinue", ("retinue", "acp")),
    }
)
"""By the name that a configuration uses."""
