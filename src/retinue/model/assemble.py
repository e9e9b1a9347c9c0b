"""From chunks to one assistant message."""

from __future__ import annotations

from typing import assert_never

from retinue.base.text import well_formed
from retinue.model.chunks import CallDelta, CallStart, Chunk, Finish, FinishReason, ReasoningDelta, TextDelta, Used
from retinue.model.content import AssistantMessage, Block, Reasoning, Text, ToolCall, Usage

__all__ = ["Assembler"]


class _Call:
    __slots__ = ("arguments", "id", "name")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.arguments: list[str] = []


class _Prose:
    __slots__ = ("kind", "parts", "signature")

    def __init__(self, kind: type[Text] | type[Reasoning]) -> None:
        self.kind = kind
        self.parts: list[str] = []
        self.signature: str | None = None


class Assembler:
    """Collects the chunks of one attempt; `feed` is the sink to hand to a client."""

    __slots__ = ("_calls", "_prose", "finish", "usage")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nothing has arrived: a new attempt begins."""
        self._prose: list[_Prose] = []
        self._calls: dict[int, _Call] = {}
        self.usage: Usage | None = None
        self.finish: FinishReason | None = None

    def feed(self, chunk: Chunk) -> None:
        """The chunk is part of the reply."""
        match chunk:
            case TextDelta(text=text):
                self._block(Text).parts.append(text)
            case ReasoningDelta(text=text, signature=signature, starts=starts):
                if starts:
                    self._prose.append(_Prose(Reasoning))
                block = self._block(Reasoning)
                block.parts.append(text)
                block.signature = signature or block.signature
            case CallDelta(index=index, text=text):
                self._calls.setdefault(index, _Call("", "")).arguments.append(text)
            case CallStart(index=index, id=id, name=name):
                call = self._calls.setdefault(index, _Call(id, name))
                call.id = call.id or id
                call.name = call.name or name
            case Used(usage=usage):
                self.usage = usage
            case Finish(reason=reason):
                self.finish = reason
            case _:
                assert_never(chunk)

    def _block(self, kind: type[Text] | type[Reasoning]) -> _Prose:
        if not self._prose or self._prose[-1].kind is not kind:
            self._prose.append(_Prose(kind))
        return self._prose[-1]

    @property
    def has_content(self) -> bool:
        """Something that the user could see, or reasoning, has arrived."""
        return any(part for prose in self._prose for part in prose.parts)

    def message(self) -> AssistantMessage:
        """The reply as it stands.

        Tool calls count only in a reply that finished whole: a call of a cut, truncated or filtered reply may have
        lost its arguments. Call ids that are missing or repeat within the message are
        replaced, since results are matched by them on the wire.
        """
        blocks: list[Block] = []
        for prose in self._prose:
            text = well_formed("".join(prose.parts))
            if prose.kind is Text and text:
                blocks.append(Text(text))
            elif prose.kind is Reasoning and (text or prose.signature):
                blocks.append(Reasoning(text, prose.signature))
        if self.finish in ("stop", "tool-calls"):
            blocks.extend(self._tool_calls())
        return AssistantMessage(tuple(blocks))

    def _tool_calls(self) -> list[ToolCall]:
        seen: set[str] = set()
        calls: list[ToolCall] = []
        for slot, (_, call) in enumerate(sorted(self._calls.items())):
            id = call.id or f"call_{slot}"
            while id in seen:
                id = f"{id}_{slot}"
            seen.add(id)
            calls.append(ToolCall(well_formed(id), well_formed(call.name), well_formed("".join(call.arguments))))
        return calls
