"""Building a model request from the log, and making it: header, transcript, attempts, the assembled reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.agent.environment import Attempt
from retinue.agent.signals import ChunkArrived, ChunksWithdrawn
from retinue.base.text import well_formed
from retinue.errors import ModelError, ModelNotConfigured
from retinue.model.assemble import Assembler
from retinue.model.chunks import CallDelta, Chunk, ReasoningDelta, Sink, TextDelta
from retinue.model.client import Body, ModelClient, ModelRequest, ToolSpec, Transcript
from retinue.prompt.assembly import AssemblyContext, assemble
from retinue.session.events import Payload, RequestContext, RequestHeaderChange

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = ["Conversation", "ask"]


class Conversation:
    """One agent's history in the wire form of one client. Grows with the log and is never encoded again."""

    __slots__ = ("_client", "_header", "_logged_header", "_names", "_position", "_transcript")

    def __init__(self) -> None:
        self._client: ModelClient | None = None
        self._transcript: Transcript | None = None
        self._position = 0
        self._names: tuple[tuple[ToolSpec, ...], frozenset[str]] | None = None
        self._header: tuple[str, tuple[ToolSpec, ...], object] | None = None
        self._logged_header = False

    def transcript(self, agent: Agent, client: ModelClient) -> Transcript:
        """The whole history so far."""
        if self._transcript is None or self._client is not client:
            self._client = client
            self._transcript, self._position = client.transcript(), 0
        messages = agent.session.history.messages
        if self._position < len(messages):
            self._transcript.extend(messages[self._position :])
            self._position = len(messages)
        return self._transcript

    def tool_names(self, tools: tuple[ToolSpec, ...]) -> frozenset[str]:
        """The names of `tools`, collected again only for another list."""
        if self._names is None or self._names[0] is not tools:
            self._names = (tools, frozenset(spec.name for spec in tools))
        return self._names[1]

    def header_change(self, agent: Agent, request: ModelRequest) -> RequestHeaderChange | None:
        """The event to log before this request, if its header is not the last one of the log.

        The first request of a runtime always logs one. Source: behaviour TL-09.
        """
        header = (request.system, request.tools, agent.options)
        if self._header is not None and header[1] is self._header[1] and header == self._header:
            return None
        self._header = header
        logged = agent.environment.headers.of(request)
        last = agent.session.turns.header
        if not self._logged_header:
            self._logged_header = True
            return RequestHeaderChange(logged, "initial" if last is None else "resume")
        return None if logged == last else RequestHeaderChange(logged, "change")


class _Prepared(Struct, frozen=True):
    client: ModelClient
    request: ModelRequest
    body: Body


def _prepare(agent: Agent) -> _Prepared:
    options = agent.options
    missing = [name for name, value in (("provider", options.provider), ("model", options.model)) if not value]
    if options.provider is None or options.model is None or missing:
        raise ModelNotConfigured(
            f"agent {agent.id!r} has no {' and no '.join(missing)}; set a model as PROVIDER:NAME, "
            "for example with --model or in the configuration"
        )
    client = agent.environment.client(options.provider)
    tools = agent.tools.specs()
    context = AssemblyContext(
        provider=options.provider,
        model=options.model,
        cwd=agent.cwd,
        tools=agent.conversation.tool_names(tools),
    )
    request = ModelRequest(
        model=options.model,
        system=assemble(agent.prompt, context),
        tools=tools,
        transcript=agent.conversation.transcript(agent, client),
        max_tokens=options.max_tokens,
        options=options.body,
        session_id=agent.id,
        label=agent.label,
    )
    return _Prepared(client, request, client.encode(request))


def _changes(agent: Agent, prepared: _Prepared) -> list[Payload]:
    request, client = prepared.request, prepared.client
    payloads: list[Payload] = []
    header = agent.conversation.header_change(agent, request)
    if header is not None:
        payloads.append(header)
    context = RequestContext(client.provider, request.model, client.context_window(request.model))
    if context != agent.session.turns.context:
        payloads.append(context)
    return payloads


async def ask(agent: Agent, turn: int, step: int, assembler: Assembler) -> None:
    """The model's reply is in `assembler`, whole.

    What the request needs is logged and committed first. Failed attempts are repeated as the retry policy says, and
    their chunks withdrawn. Raises: ModelError, ModelNotConfigured, PromptError, and the failure of a dropped session.
    Cancelled: `assembler` holds what had arrived.
    """
    prepared = _prepare(agent)
    changes = _changes(agent, prepared)
    if changes:
        tx = agent.transaction()
        tx.append(agent.session, *changes)
        tx.submit()
    failures = 0
    while True:
        await agent.environment.sessions.writer.committed()
        agent.session.check()
        await agent.environment.sessions.confirm(agent.session.hold)
        try:
            await agent.chains.model_request.run(
                Attempt(
                    agent=agent,
                    client=prepared.client,
                    request=prepared.request,
                    body=prepared.body,
                    sink=_sink(agent, turn, step, failures + 1, assembler),
                    number=failures + 1,
                ),
                _send,
            )
            return
        except ModelError as error:
            failures += 1
            delay_s = agent.environment.retry.delay_s(error, failures, agent.environment.random)
            agent.bus.publish(ChunksWithdrawn(agent, turn, step, failures, error, delay_s))
            assembler.reset()
            if delay_s is None:
                raise
            await agent.environment.sessions.clock.sleep(delay_s)


async def _send(attempt: Attempt) -> None:
    await attempt.client.stream(attempt.request, attempt.body, attempt.sink)


def _sink(agent: Agent, turn: int, step: int, number: int, assembler: Assembler) -> Sink:
    bus, feed = agent.bus, assembler.feed

    def sink(chunk: Chunk) -> None:
        feed(chunk)
        if bus.wants(ChunkArrived):  # asked for each chunk: who begins to watch in the middle sees the rest
            bus.publish(ChunkArrived(agent, turn, step, number, _encodable(chunk)))

    return sink


def _encodable(chunk: Chunk) -> Chunk:
    """The chunk as observers can write it down: half a character, whose other half may follow, becomes U+FFFD."""
    if isinstance(chunk, TextDelta | ReasoningDelta | CallDelta):
        text = well_formed(chunk.text)
        return chunk if text is chunk.text else replace(chunk, text=text)
    return chunk
