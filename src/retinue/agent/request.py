"""Building a model request from the log, and making it: header, attempts, the assembled reply, the record of both."""

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
from retinue.model.client import Body, ModelClient, ModelRequest
from retinue.model.encoding import Encoder, SentBody, encoder_of, sent_of
from retinue.prompt.assembly import AssemblyContext, assemble
from retinue.session.events import Payload, RequestContext

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = ["Exchange", "ask"]


class Exchange:
    """One step's request and what came back of it, as far as it got."""

    __slots__ = ("reply", "sent")

    def __init__(self) -> None:
        self.reply = Assembler()
        self.sent: SentBody | None = None
        """The record of the body that left last; None before, and for a client without an encoder."""

    def reset(self) -> None:
        """Nothing was sent and nothing has arrived: a new step begins."""
        self.reply.reset()
        self.sent = None


class _Prepared(Struct, frozen=True):
    client: ModelClient
    encoder: Encoder | None
    request: ModelRequest
    body: Body

    def record(self, attempt: Attempt) -> SentBody | None:
        """What leaves with `attempt`: a layer may have changed the body, or chosen another client."""
        if self.encoder is None or attempt.client is not self.client:
            return None
        return self.encoder.sent(self.request, self.body) if attempt.body is self.body else sent_of(attempt.body)


def _prepare(agent: Agent) -> _Prepared:
    options = agent.options
    missing = [name for name, value in (("provider", options.provider), ("model", options.model)) if not value]
    if options.provider is None or options.model is None or missing:
        raise ModelNotConfigured(
            f"agent {agent.id!r} has no {' and no '.join(missing)}; set a model as PROVIDER:NAME, "
            "for example with --model or in the configuration"
        )
    client = agent.environment.client(options.provider)
    tools = agent.tools.specs(agent.environment.tool_order)
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
        transcript=agent.conversation.transcript(agent.session.history, client),
        max_tokens=options.max_tokens,
        options=options.body,
        session_id=agent.id,
        label=agent.label,
    )
    return _Prepared(client, encoder_of(client), request, client.encode(request))


def _changes(agent: Agent, prepared: _Prepared) -> list[Payload]:
    request, client = prepared.request, prepared.client
    payloads: list[Payload] = []
    header = agent.conversation.header_change(agent, request)
    if header is not None:
        payloads.append(header)
    encoding = None if prepared.encoder is None else prepared.encoder.encoding(request.model)
    context = RequestContext(client.provider, request.model, client.context_window(request.model), encoding)
    if context != agent.session.turns.context:
        payloads.append(context)
    return payloads


async def ask(agent: Agent, turn: int, step: int, exchange: Exchange) -> None:
    """The model's reply is in `exchange`, whole.

    What the request needs is logged and committed first. Failed attempts are repeated as the retry policy says, and
    their chunks withdrawn. Raises: ModelError, ModelNotConfigured, PromptError, and the failure of a dropped session.
    Cancelled or failed: `exchange` holds what had been sent and had arrived.
    """
    assembler = exchange.reply
    prepared = _prepare(agent)
    changes = _changes(agent, prepared)
    if changes:
        tx = agent.transaction()
        tx.append(agent.session, *changes)
        tx.submit()

    async def send(attempt: Attempt) -> None:
        await agent.environment.sessions.writer.committed()
        agent.session.check()
        await agent.environment.sessions.confirm(agent.session.hold)
        exchange.sent = prepared.record(attempt)
        await attempt.client.stream(attempt.request, attempt.body, attempt.sink)

    failures = 0
    while True:
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
                send,
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
