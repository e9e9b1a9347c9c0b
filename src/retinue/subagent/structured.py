"""A result that satisfies a schema: the tool through which a child delivers it, and the guard that follows.

The value is what the child's log says: the first call of the tool whose logged result is a success. So a layer that
turns that result into an error voids it, and a run that a crash cut off still finds it. Source: behaviour DR-08..DR-12.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from msgspec.structs import replace

from retinue.agent.agent import Agent
from retinue.agent.registry import Setup
from retinue.base.chain import Next
from retinue.base.json import JSON, JSONObject
from retinue.errors import BadInput, SchemaError
from retinue.model.content import Text, ToolCall
from retinue.prompt.sections import Section
from retinue.session.events import AssistantReply, Event, ToolReturned
from retinue.session.session import Session
from retinue.subagent.outcome import Outcome
from retinue.tools.arguments import Checker, is_object, parse_arguments
from retinue.tools.function import schema_tool
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["SECTION_ORDER", "TOOL_NAME", "check_schema", "structured_setup", "structured_value", "with_structured"]

TOOL_NAME = "structured_output"
SECTION_ORDER = 190.0
"""Source: behaviour SP-07."""

_META = "structured"
_DESCRIPTION = (
    "Deliver your result, in the form that the parameters describe. Call it once, when everything else is done: as "
    "soon as it succeeds your work is over and no further call is made. If it says what is wrong, mend that and call "
    "it again."
)
_SECTION = (
    f"Your result goes to a program. Deliver it by calling `{TOOL_NAME}`; what you merely write is not a result, and "
    "ending without that call counts as a failure. Make it your last call, after all others have returned."
)
_MISSING = f"it ended without a successful call of {TOOL_NAME}"


def check_schema(schema: JSONObject) -> None:
    """Return if a child can be held to `schema`: valid, of type object, and complete in itself.

    Raises: SchemaError.
    """
    if schema.get("type") != "object":
        raise SchemaError(f"an output schema must say `type: object` at its root, not {schema.get('type')!r}")
    try:
        Checker(TOOL_NAME, schema).compile()
    except BadInput as error:
        raise SchemaError(f"the output schema cannot be used: {error}") from error


def structured_setup(schema: JSONObject, then: Setup) -> Setup:
    """`then`, and the child has the tool, its section and the guard; all end with it."""

    async def setup(agent: Agent) -> None:
        await then(agent)
        captured = _Captured(agent.session.header.seed_length or 0)
        captured.apply(agent.session.events)

        def observe(_: Session, events: Iterable[Event]) -> None:
            captured.apply(events)

        async def guard(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
            if captured.value is not None:
                return ToolResult.error("RESULT_DELIVERED", "your result was delivered; no further call is made")
            return await inner(request)

        with ExitStack() as stack:
            stack.enter_context(agent.session.observe(observe))
            stack.enter_context(agent.chains.tool_call.wrap(guard))
            section = Section(name=f"tool:{TOOL_NAME}", order=SECTION_ORDER, text=_SECTION, tool=TOOL_NAME)
            stack.enter_context(agent.prompt.add(section))
            stack.enter_context(agent.tools.add(_tool(schema)))
            agent.scope.push(stack.pop_all())

    return setup


def _tool(schema: JSONObject) -> Tool:
    async def body(_: ToolContext, arguments: JSONObject) -> ToolResult:
        return ToolResult(content=(Text("Delivered."),), value=arguments, meta={_META: arguments}, concludes=True)

    return schema_tool(name=TOOL_NAME, description=_DESCRIPTION, parameters=schema, body=body, effect="rows")


def structured_value(events: Iterable[Event], *, first: int = 0) -> JSONObject | None:
    """What the child delivered from seq `first` on, or None."""
    captured = _Captured(first)
    captured.apply(events)
    return captured.value


def with_structured(
    outcome: Outcome, events: Iterable[Event], *, first: int = 0, is_cancelled: bool = False
) -> Outcome:
    """The outcome of a run that owes a structured result: without one, `completed` is an `error`.

    A run that somebody cancelled owes none, so it is `aborted` then; one that was delivered before is kept, whatever
    the ending. Source: behaviour DR-06, DR-12.
    """
    value = structured_value(events, first=first)
    if value is None and outcome.ending == "completed":
        if is_cancelled:
            return replace(outcome, ending="aborted")
        return replace(outcome, ending="error", diagnostic=_MISSING)
    return replace(outcome, structured=value)


class _Captured:
    """The fold: the first delivery from seq `first` on."""

    __slots__ = ("_calls", "_first", "value")

    def __init__(self, first: int) -> None:
        self.value: JSONObject | None = None
        self._first = first
        self._calls: tuple[ToolCall, ...] = ()

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            data = event.data
            if self.value is not None or event.seq < self._first:
                continue
            if type(data) is AssistantReply:
                self._calls = data.message.calls
            elif type(data) is ToolReturned and not data.message.is_error:
                call = self._calls[data.index]
                if call.name == TOOL_NAME:
                    self.value = _delivered(data, call)


def _delivered(data: ToolReturned, call: ToolCall) -> JSONObject:
    """What the body was given; where a layer made a result of its own, what the model wrote."""
    value: JSON = (data.meta or {}).get(_META)
    return value if is_object(value) else parse_arguments(call.arguments)
