"""The client's side of the protocol: a program made ready, and one prompt with all that is said about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import TypeVar

import anyio
import anyio.lowlevel
from msgspec import Raw

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.base.frames import INVALID_PARAMS, UNKNOWN_METHOD, Failure
from retinue.base.json import JSON, JSONObject
from retinue.errors import ExternalAgentFailed
from retinue.host.approvals import Answer
from retinue.model.chunks import Finish, FinishReason, ReasoningDelta, Sink, TextDelta, Used
from retinue.model.content import Usage
from retinue.session.events import ExternalPermission, ExternalPrompt
from retinue.subagent.providers.acp.calls import ExternalCalls
from retinue.subagent.providers.acp.external import UNNAMED, ExternalAgent, title_of
from retinue.subagent.providers.acp.program import Program
from retinue.subagent.providers.acp.prompts import Due, blocks_of, due
from retinue.subagent.providers.acp.wire import (
    VERSION,
    Capabilities,
    Initialized,
    PermissionRequest,
    Prompted,
    SessionOpened,
    Update,
    Updated,
    read,
)

__all__ = ["CANCEL_GRACE_S", "Exchange", "initialize"]

T = TypeVar("T")

CANCEL_GRACE_S = 5.0
"""How long a program may take to answer a prompt that was cancelled, before it is ended."""
MAX_REPLY_CHARS = 8_000_000
"""Of one prompt; a program that says more is ended."""

_FINISH: Mapping[str, FinishReason] = MappingProxyType(
    {"end_turn": "stop", "max_tokens": "length", "refusal": "content-filter"}
)
"""Source: behaviour AC-17. `cancelled` is an abort, and everything else an error."""
_NOT_DECIDED: JSONObject = {"outcome": {"outcome": "cancelled"}}


async def initialize(program: Program, known: ExternalAgent) -> Capabilities:
    """What the program says it can do. Raises: ExternalAgentFailed, also for another version of the protocol."""
    params: JSONObject = {
        "protocolVersion": VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "retinue", "title": "Retinue", "version": version("retinue")},
    }
    answer = await _asked(program, known, "initialize", params, Initialized)
    if answer.protocol_version != VERSION:
        raise program.failed(f"speaks version {answer.protocol_version} of the protocol, and Retinue {VERSION}")
    return answer.agent_capabilities or Capabilities()


async def _asked(program: Program, known: ExternalAgent, method: str, params: JSONObject, kind: type[T]) -> T:
    with anyio.move_on_after(known.start_timeout_s):
        return _understood(program, method, await program.request(method, params), kind)
    raise program.failed(f"did not answer {method} within {known.start_timeout_s:g} s")


def _understood(program: Program, method: str, answer: Raw, kind: type[T]) -> T:
    try:
        return read(answer, kind)
    except ValueError as error:
        raise program.failed(f"answered {method} with something that cannot be read: {error}") from error


class Exchange:
    """One prompt: what the child is owed, given to a program that was started for it."""

    def __init__(self, agent: Agent, known: ExternalAgent, sink: Sink) -> None:
        self._agent = agent
        self._known = known
        self._sink = sink
        self._calls = ExternalCalls(agent, known.secrets)
        self._session: str | None = None
        """Set while what the program says of that session belongs to the prompt."""
        self._patience = anyio.CancelScope()
        """Ends the wait for the answer; its deadline moves with all that is heard."""
        self._asking: set[anyio.CancelScope] = set()
        """Questions of the program that wait for somebody's word."""
        self._is_cancelled = False
        """The prompt was taken back: nobody is asked anything for it any more."""
        self._fault = ""
        """Why it was ended, if not for silence."""
        self._said_chars = 0
        self._has_text = False
        self._message_id: str | None = None
        self._is_apart = False
        """Calls came after the last text: what follows begins a paragraph of its own."""

    async def run(self, program: Program) -> None:
        """Everything that the program said went to the sink, its reason to stop last.

        Raises: ExternalAgentFailed. Cancelling tells the program and waits a little for what it still says.
        """
        can = await initialize(program, self._known)
        owed = due(self._agent.session.events)
        session = await self._open(program, can, owed)
        await self._log(session)
        images = can.prompt_capabilities is not None and bool(can.prompt_capabilities.image)
        prompted = await self._prompt(program, session, blocks_of(owed, images=images))
        await self._finish(program, prompted)

    async def _open(self, program: Program, can: Capabilities, owed: Due) -> str:
        """The id of the session that takes the prompt: the known one wherever the program can go on with it."""
        # `mcpServers` is required by the protocol.
        place: JSONObject = {"cwd": str(self._known.place(self._agent.cwd)), "mcpServers": []}
        if owed.session is not None and can.continues:
            method = "session/resume" if can.resumes else "session/load"
            try:
                await _asked(program, self._known, method, {**place, "sessionId": owed.session}, object)
                return owed.session
            except ExternalAgentFailed as failure:
                # A program may keep a session only once it has answered in it.
                if not (failure.is_answer and owed.is_first):
                    raise
        elif owed.session is not None and not owed.is_first:
            raise program.failed("cannot take up an earlier session, so it takes no further messages; start a new one")
        return (await _asked(program, self._known, "session/new", place, SessionOpened)).session_id

    async def _log(self, session: str) -> None:
        """The log says that the session gets the prompt, before it does."""
        turn, step = self._place()
        tx = self._agent.transaction()
        tx.append(self._agent.session, ExternalPrompt(turn=turn, step=step, session=session))
        await tx.submit().wait()

    async def _prompt(self, program: Program, session: str, blocks: list[JSONObject]) -> Prompted:
        answer = program.peer.begin("session/prompt", {"sessionId": session, "prompt": [*blocks]})
        self._session = session
        try:
            with anyio.move_on_after(self._known.silence_s) as self._patience:
                await answer.came.wait()
        except anyio.get_cancelled_exc_class():
            self._is_cancelled = True
            for scope in tuple(self._asking):
                scope.cancel()
            program.peer.notify("session/cancel", {"sessionId": session})
            with anyio.move_on_after(CANCEL_GRACE_S, shield=True):
                await answer.came.wait()
            raise
        finally:
            self._session = None
        if self._fault or not answer.came.is_set():
            raise program.failed(self._fault or f"has said nothing for {self._known.silence_s:g} s")
        return _understood(program, "session/prompt", await program.result("session/prompt", answer), Prompted)

    async def _finish(self, program: Program, prompted: Prompted) -> None:
        usage = _usage(prompted.usage)
        if usage is not None:
            self._sink(Used(usage))
        if prompted.stop_reason == "cancelled":
            # Nobody here asked for it: the turn ends as if somebody had.
            self._agent.cancel(Cause("hook", f"agent {self._known.name!r} cancelled its turn"), keep_mailbox=True)
            await anyio.lowlevel.checkpoint()
        finish = _FINISH.get(prompted.stop_reason)
        if finish is None:
            raise program.failed(f"stopped early: {prompted.stop_reason}")
        self._sink(Finish(finish))

    # What the program sends

    async def handle(self, method: str, params: Raw, is_request: bool) -> JSON:
        """See Handler of the peer. Raises: Failure for what is not supported or cannot be read."""
        try:
            match method:
                case "session/update":
                    self._updated(read(params, Updated))
                    return None
                case "session/request_permission":
                    return await self._decide(read(params, PermissionRequest))
                case _:
                    raise Failure(UNKNOWN_METHOD, f"{method} is not supported by this client")
        except ValueError as error:
            raise Failure(INVALID_PARAMS, f"{method}: {error}") from error

    def _updated(self, told: Updated) -> None:
        if self._session is None or told.session_id != self._session:
            return  # what a session tells again while it is loaded is in the log
        self._listen()
        update = told.update
        match update.kind:
            case "agent_message_chunk":
                self._say(update, is_thought=False)
            case "agent_thought_chunk":
                self._say(update, is_thought=True)
            case "tool_call" | "tool_call_update":
                self._is_apart = True
                turn, step = self._place()
                self._calls.updated(update, turn=turn, step=step)
            case _:
                pass

    def _say(self, update: Update, *, is_thought: bool) -> None:
        text = _shown(update.content)
        if not text:
            return
        if self._said_chars + len(text) > MAX_REPLY_CHARS:
            self._fault = f"said more than {MAX_REPLY_CHARS} characters at once"
            self._patience.cancel()
            return
        if is_thought:
            self._sink(ReasoningDelta(text))
        else:
            is_apart = self._is_apart or update.message_id != self._message_id
            self._sink(TextDelta(f"\n\n{text}" if is_apart and self._has_text else text))
            self._is_apart, self._has_text, self._message_id = False, True, update.message_id
        self._said_chars += len(text)

    async def _decide(self, asked: PermissionRequest) -> JSONObject:
        if asked.session_id != self._session or self._is_cancelled:
            return _NOT_DECIDED
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            self._listen()
            try:
                call = self._known.secrets.mask_json(asked.tool_call)  # whole: what is cut may not be known any more
                assert isinstance(call, dict)
                answer = await self._known.approve(self._agent, call)
                self._log_decision(call, answer)
                # Once, and never for always: what a program remembers, nobody here could take back.
                wanted = ("allow_once",) if answer.verb == "allow" else ("reject_once", "reject_always")
                chosen = next((option for kind in wanted for option in asked.options if option.kind == kind), None)
                if chosen is not None:
                    return {"outcome": {"outcome": "selected", "optionId": chosen.option_id}}
            finally:
                self._asking.discard(scope)
                self._listen()
        return _NOT_DECIDED

    def _listen(self) -> None:
        """Something was heard; while a question is open, nobody expects to hear more."""
        patience_s = math.inf if self._asking else self._known.silence_s
        self._patience.deadline = anyio.current_time() + patience_s

    def _log_decision(self, call: JSONObject, answer: Answer) -> None:
        turn, step = self._place()
        decided = ExternalPermission(
            turn=turn,
            step=step,
            title=title_of(call) or UNNAMED,
            verb=answer.verb,
            by=answer.by,
            always=answer.always and answer.verb == "allow",
        )
        tx = self._agent.transaction()
        tx.append(self._agent.session, decided)
        tx.submit()

    def _place(self) -> tuple[int, int]:
        """The turn and the step whose request this is."""
        turn = self._agent.session.turns.open
        assert turn is not None
        assert turn.step is not None
        return turn.number, turn.step.number


def _shown(content: JSON) -> str:
    """A chunk as text; what cannot be shown as such is named."""
    match content:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource_link", "uri": str(uri)}:
            return uri
        case {"type": str(kind)} if kind != "text":
            return f"[{kind}]"
        case _:
            return ""


def _usage(told: JSON) -> Usage | None:
    """Of the prompt, if the program tells it. The protocol counts what came from a cache beside the input."""
    match told:
        case {"inputTokens": int(fresh), "outputTokens": int(output)}:
            read_again, written = _count(told.get("cachedReadTokens")), _count(told.get("cachedWriteTokens"))
            return Usage(
                input_tokens=fresh + read_again + written,
                output_tokens=output,
                cached_tokens=read_again,
                cache_write_tokens=written,
                reasoning_tokens=_count(told.get("thoughtTokens")),
                requests=1,
            )
        case _:
            return None


def _count(value: JSON) -> int:
    return value if isinstance(value, int) else 0
