"""What a model reads about a delegation tool: description, parameters, guidance and receipts.

All of it follows from the instance's provider and configuration, so that the texts, the schema and what a call really
does state the same default.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

from retinue.base.json import JSONObject
from retinue.model.client import ToolSpec
from retinue.prompt.sections import AssemblyContext, Section
from retinue.subagent.outcome import Ending
from retinue.subagent.provider import Capabilities

__all__ = [
    "GUIDANCE_ORDER",
    "Background",
    "continuable_receipt",
    "guidance",
    "headline",
    "shared_guidance",
    "tool_spec",
]

Background: TypeAlias = Literal["continuable", "one-shot", "disabled"]
"""What `run_in_background` means for an instance; `disabled` has no such parameter."""

GUIDANCE_ORDER = 116.5
"""Source: behaviour TS-17."""

_LABEL_TEXT = "Three to seven words that name the task, for people who watch."
_PROMPT_TEXT = "The whole task, complete in itself."
_FORK_PROMPT_TEXT = "Only what is new: the task, and what has happened since your last finished turn."

_FRESH = (
    "Hand a task to a fresh agent that works on it by itself, in the same folder and with a context of its own. It "
    "does not see this conversation, so the prompt must be complete: paths, facts already found, what exactly to "
    "answer and in which form. What comes back is its result, not its steps."
)
_FORK = (
    "Hand a task to a copy of yourself. It knows this conversation up to your last completed turn, but not the turn "
    "that is going on now, so say in the prompt only what is new. What comes back is its result, not its steps."
)
_MODES: dict[Background, str] = {
    "continuable": (
        "By default the agent works in the background: the call returns its durable id at once, and a notice with the "
        "outcome and any closing message follows by itself when it settles. Give it later turns with send_message. Set "
        "run_in_background to false only if your very next action needs the result; then the call waits for it."
    ),
    "one-shot": (
        "By default the call waits for the result. With run_in_background set to true it returns a task id at once: "
        "collect the result with task_output (with wait set to true only when you are really blocked on it) and stop "
        "the work with task_kill."
    ),
    "disabled": "The call waits until the result is there.",
}
_OVERLAP = "Calls in one message run side by side."

_PARAMETER: dict[Background, str] = {
    "continuable": (
        "Default true: the call returns the agent's id at once and a notice follows. Set false only when your next "
        "action cannot be taken without the result."
    ),
    "one-shot": (
        "Default false: the call waits for the result. Set true when you have other work meanwhile; the call then "
        "returns a task id."
    ),
    "disabled": "",
}

_HEADLINES: dict[Ending, str] = {
    "aborted": "The agent was cancelled before it finished.",
    "error": "The agent failed.",
    "max-tokens": "The agent reached its token limit before it finished.",
    "refusal": "The agent declined the task.",
    "timeout": "The agent ran out of time before it finished.",
    "over-budget": "The agent used up its budget before it finished.",
    "interrupted": "The agent was interrupted by the end of its process.",
}


def tool_spec(name: str, capabilities: Capabilities, background: Background, purpose: str | None = None) -> ToolSpec:
    """The tool as the model sees it; `purpose` says first what its children are good for."""
    is_fork = capabilities.inherits_context
    properties: JSONObject = {
        "description": {"type": "string", "description": _LABEL_TEXT},
        "prompt": {"type": "string", "description": _FORK_PROMPT_TEXT if is_fork else _PROMPT_TEXT},
    }
    if background != "disabled":
        properties["run_in_background"] = {"type": "boolean", "description": _PARAMETER[background]}
    return ToolSpec(
        name=name,
        description="\n\n".join(
            (*([purpose] if purpose else []), _FORK if is_fork else _FRESH, f"{_MODES[background]} {_OVERLAP}")
        ),
        parameters={"type": "object", "properties": properties, "required": ["description", "prompt"]},
    )


def guidance(name: str) -> str:
    """The section `tool:<name>` of an instance whose children run in the background by default.

    Source: behaviour TS-17.
    """
    return (
        f"Working in the background is the normal case for `{name}`. Put delegations that do not depend on each other "
        "into one message, and go on with work of your own meanwhile. You are told when each agent settles: a notice "
        "comes by itself, so there is nothing to poll or to wait for, and ending your turn is fine. Choose the "
        "foreground (run_in_background false) only when your very next action needs the answer."
    )


def shared_guidance(name: str, order: float, text: str, tools: Collection[str]) -> Section:
    """The section of several delegation tools: `text`, with those that an agent sees for `{tools}`.

    An agent that sees none of them has no such section.
    """

    def render(context: AssemblyContext) -> str:
        visible = sorted(tool for tool in tools if tool in context.tools)
        return text.format(tools=", ".join(f"`{tool}`" for tool in visible)) if visible else ""

    return Section(name=name, order=order, text=render)


def continuable_receipt(child: str, ahead: int = 0) -> str:
    """What a background call answers: an id, and that it is no result. `ahead` others get room before it."""
    state = f"waits for room, with {ahead} ahead of it" if ahead else "is at work in the background"
    return (
        f"Agent {child} {state}. This is a receipt, not its result: a notice with the outcome "
        "will come by itself, so do not poll or sleep. Go on with other work, or end your turn."
    )


def headline(ending: Ending) -> str:
    """The first line of an error result."""
    return _HEADLINES.get(ending, f"The agent ended abnormally ({ending}).")
