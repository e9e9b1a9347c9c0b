"""The tools of the server as data: a name, a description, and a struct for the arguments of each."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias, cast

import msgspec
from msgspec import Meta, Struct

from retinue.base.json import JSON, JSONObject
from retinue.errors import BadInput
from retinue.mcp.delegation import Delegation

__all__ = ["INSTRUCTIONS", "TOOLS", "WAIT_LIMIT_S", "Arguments", "parse_arguments", "schema_of"]

INSTRUCTIONS = """\
Hand work to agents that run on their own, in parallel, with tools of their own, and that outlive this connection. Each
knows only what its prompt says. Start several, go on with your own work, and then wait for each, or read the notices:
every agent that ends leaves exactly one. An agent that has ended still remembers everything; a message starts it again.
If an answer is lost, call again with the same key: nothing happens twice."""

WAIT_LIMIT_S = 600.0
"""The longest wait of one call."""

AgentId: TypeAlias = Annotated[str, Meta(description="The agent's id, or a unique beginning of it.", min_length=1)]
Key: TypeAlias = Annotated[
    str | None,
    Meta(
        description="Any text that is yours for this one call. The same again with the same key has no second effect."
    ),
]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=WAIT_LIMIT_S)]


class Arguments(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of one tool, which they carry out."""

    is_reading: ClassVar[bool] = False
    """The tool changes nothing, so hosts need not ask anybody before they call it."""

    async def perform(self, delegation: Delegation) -> JSONObject:
        """What the call comes to. Raises: RetinueError for what the host can put right."""
        raise NotImplementedError


class StartAgent(Arguments, frozen=True):
    """Start an agent. Returns its id as soon as it has durably taken the prompt; it works in the background."""

    prompt: Annotated[str, Meta(description="What it shall do, with all that it must know: it sees nothing else.")]
    label: Annotated[str, Meta(description="Three to six words for people.")]
    agent: Annotated[
        str | None, Meta(description="The name of an agent file of the served folder, for an agent with a speciality.")
    ] = None
    folder: Annotated[
        str | None, Meta(description="Where it works: a folder in the served one. Default: the served one.")
    ] = None
    key: Key = None

    async def perform(self, delegation: Delegation) -> JSONObject:
        id = await delegation.start(self.prompt, label=self.label, kind=self.agent, folder=self.folder, key=self.key)
        return {"agent_id": id}


class SendMessage(Arguments, frozen=True):
    """Give an agent its next turn. It waits behind one that runs; an agent that had ended starts again. Then wait."""

    agent_id: AgentId
    message: Annotated[str, Meta(description="What it shall do or know.")]
    key: Key = None

    async def perform(self, delegation: Delegation) -> JSONObject:
        id, message = await delegation.send(self.agent_id, self.message, key=self.key)
        return {"agent_id": id, "message_id": message}


class WaitAgent(Arguments, frozen=True):
    """Wait until an agent has ended: with all of its work and that of those it started. The answer says how it ended
    and what it said last, or that it is still working when the time is over; then go on with something else, or wait
    again."""

    is_reading = True

    agent_id: AgentId
    timeout_s: Annotated[Seconds, Meta(description="The longest wait. 0 looks only.")] = 30.0

    async def perform(self, delegation: Delegation) -> JSONObject:
        return _object(await delegation.wait(self.agent_id, self.timeout_s))


class ReadNotices(Arguments, frozen=True):
    """Read what agents have sent: one settlement for each time that one ended, and reports meanwhile. Pass the `next`
    of your last reading as `since` and you get each exactly once; read from an older place, or from none, to get them
    again."""

    is_reading = True

    since: Annotated[str | None, Meta(description="The `next` of an earlier reading. Default: from the beginning.")] = (
        None
    )
    timeout_s: Annotated[Seconds, Meta(description="How long to wait if there is nothing.")] = 0.0

    async def perform(self, delegation: Delegation) -> JSONObject:
        return _object(await delegation.notices(self.since, self.timeout_s))


class ListAgents(Arguments, frozen=True):
    """List the agents of this workspace, oldest first, also those of an earlier connection, and how each stands."""

    is_reading = True

    under: Annotated[
        str | None, Meta(description="The id of an agent: list those that it has started. Default: your own.")
    ] = None

    async def perform(self, delegation: Delegation) -> JSONObject:
        return {"agents": [_object(view) for view in await delegation.agents(self.under)]}


class LastWords(Arguments, frozen=True):
    """Read the newest words of an agent in full, while it works or after it has ended."""

    is_reading = True

    agent_id: AgentId

    async def perform(self, delegation: Delegation) -> JSONObject:
        return {"text": await delegation.last_words(self.agent_id)}


class InterruptAgent(Arguments, frozen=True):
    """End the open turn of an agent as soon as it can. What is queued for it waits for the next message; agents that it
    started go on."""

    agent_id: AgentId
    key: Key = None

    async def perform(self, delegation: Delegation) -> JSONObject:
        return {"agent_id": await delegation.interrupt(self.agent_id, key=self.key)}


class StopAgent(Arguments, frozen=True):
    """End an agent and everybody below it, and withdraw what is queued for them. A later message starts it again."""

    agent_id: AgentId
    key: Key = None

    async def perform(self, delegation: Delegation) -> JSONObject:
        return {"agent_id": await delegation.stop(self.agent_id, key=self.key)}


TOOLS: dict[str, type[Arguments]] = {
    "start_agent": StartAgent,
    "send_message": SendMessage,
    "wait_agent": WaitAgent,
    "read_notices": ReadNotices,
    "list_agents": ListAgents,
    "last_words": LastWords,
    "interrupt_agent": InterruptAgent,
    "stop_agent": StopAgent,
}


def schema_of(tool: type[Arguments]) -> JSONObject:
    """The JSON Schema of the tool's arguments."""
    _, components = msgspec.json.schema_components((tool,))
    schema = cast(JSONObject, components[tool.__name__])
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def parse_arguments(name: str, given: JSONObject) -> Arguments:
    """The arguments of the tool of that name. Raises: BadInput."""
    tool = TOOLS.get(name)
    if tool is None:
        raise BadInput(f"there is no tool {name!r}; there are {', '.join(TOOLS)}")
    try:
        return msgspec.convert(given, tool)
    except msgspec.ValidationError as error:
        raise BadInput(f"{name}: {error}") from error


def _object(value: Struct) -> dict[str, JSON]:
    return msgspec.to_builtins(value)
