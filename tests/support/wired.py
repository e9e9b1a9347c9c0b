"""A scripted model whose requests are the bytes of a real adapter: nothing is mocked but the network."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from retinue.base.ids import SessionId
from retinue.model.adapters.openai_encoder import ChatEncoder
from retinue.model.adapters.quirks import Quirks
from retinue.model.client import Body, ModelRequest, Transcript
from retinue.model.content import Message
from retinue.model.encoding import Encoder, Encoding, SentBody
from retinue.testing.model import ScriptedModel, ScriptedTranscript
from retinue.testing.script import Scripted

__all__ = ["WiredModel"]


class _Transcript(ScriptedTranscript):
    def __init__(self, wire: Transcript) -> None:
        super().__init__()
        self.wire = wire

    def extend(self, messages: Sequence[Message]) -> None:
        super().extend(messages)
        self.wire.extend(messages)


class _Encoder:
    """The adapter's encoder, for transcripts that scripts can read as well."""

    def __init__(self, inner: Encoder) -> None:
        self._inner = inner

    def encoding(self, model: str) -> Encoding:
        return self._inner.encoding(model)

    def transcript(self) -> _Transcript:
        return _Transcript(self._inner.transcript())

    def encode(self, request: ModelRequest) -> Body:
        return self._inner.encode(_wire(request))

    def sent(self, request: ModelRequest, body: Body) -> SentBody:
        return self._inner.sent(_wire(request), body)


def _wire(request: ModelRequest) -> ModelRequest:
    assert isinstance(request.transcript, _Transcript)
    return replace(request, transcript=request.transcript.wire)


class WiredModel(ScriptedModel):
    """Its `encoder` is that of an adapter; by default the one for the chat format."""

    def __init__(self, *replies: Scripted, encoder: Encoder | None = None) -> None:
        super().__init__(*replies)
        self.encoder = _Encoder(encoder or ChatEncoder(self.provider, Quirks()))

    def transcript(self) -> _Transcript:
        return self.encoder.transcript()

    def encode(self, request: ModelRequest) -> Body:
        return self.encoder.encode(request)

    def bodies(self, id: SessionId) -> list[bytes]:
        """What the session sent, in order; a repeated attempt once."""
        sent: list[bytes] = []
        for request in self.requests(id):
            body = b"".join(request.body)
            if request.attempt == 1:
                sent.append(body)
        return sent
