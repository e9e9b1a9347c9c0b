"""What a model reads about a delegation tool. Everything follows from the instance's provider and configuration."""

from __future__ import annotations

from retinue.model.client import ToolSpec
from retinue.subagent.outcome import Ending
from retinue.subagent.provider import Capabilities

__all__ = ["headline", "tool_spec"]

_DESCRIPTION_TEXT = "Three to seven words that name the task, for people who watch."
_PROMPT_TEXT = "The whole task, complete in itself."
_FORK_PROMPT_TEXT = "Only what is new: the task, and what has happened since your last finished turn."

_FRESH = (
    "Hand a task to a fresh agent that works on it by itself, with the same tools and in the same folder, and get its "
    "answer. It starts with an empty conversation and does not see this one: put everything that it needs into the "
    "prompt, such as paths, facts already found, what exactly to answer and in which form. You get its final answer, "
    "not its steps."
)
_FORK = (
    "Hand a task to a copy of yourself that knows this conversation up to your last finished turn, but not the turn "
    "that is going on now: say in the prompt only what is new. You get its final answer, not its steps."
)
_WAITS = "The call waits until the answer is there. Calls in one message run side by side."

_HEADLINES: dict[Ending, str] = {
    "aborted": "The agent was cancelled before it finished.",
    "error": "The agent failed.",
    "max-tokens": "The agent ran out of output tokens before it finished.",
    "refusal": "The agent declined the task.",
    "timeout": "The agent ran out of time.",
    "over-budget": "The agent used up its budget.",
    "interrupted": "The agent was interrupted by the end of its process.",
}


def tool_spec(name: str, capabilities: Capabilities) -> ToolSpec:
    """The tool as the model sees it."""
    is_fork = capabilities.inherits_context
    return ToolSpec(
        name=name,
        description=f"{_FORK if is_fork else _FRESH}\n\n{_WAITS}",
        parameters={
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": _DESCRIPTION_TEXT},
                "prompt": {"type": "string", "description": _FORK_PROMPT_TEXT if is_fork else _PROMPT_TEXT},
            },
            "required": ["description", "prompt"],
        },
    )


def headline(ending: Ending) -> str:
    """The first line of an error result."""
    return _HEADLINES.get(ending, f"The agent ended abnormally ({ending}).")
