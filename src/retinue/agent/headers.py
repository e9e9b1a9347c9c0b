"""What requests repeat, as the log keeps it: one object for all agents whose requests repeat the same."""

from __future__ import annotations

from msgspec import ValidationError, convert

from retinue.base.json import JSON, encode
from retinue.base.recent import Recent
from retinue.errors import CorruptSession
from retinue.model.client import ModelRequest, ToolSpec, Transcript
from retinue.session.events import RequestHeader

__all__ = ["Headers", "request_again"]


class Headers:
    """Makes the headers of requests. A thousand like children share theirs."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: Recent[object, tuple[tuple[ToolSpec, ...], RequestHeader]] = Recent()

    def of(self, request: ModelRequest) -> RequestHeader:
        """The header of `request`."""
        key = (id(request.tools), request.system, request.model, request.max_tokens, encode(request.options))
        kept = self._recent.get(key)
        if kept is None:
            # The tuple is kept beside its header: as long as it lives, no other has its identity.
            kept = (request.tools, _header(request))
            self._recent.put(key, kept)
        return kept[1]


def _header(request: ModelRequest) -> RequestHeader:
    config: dict[str, JSON] = {"model": request.model}
    if request.max_tokens is not None:
        config["max_tokens"] = request.max_tokens
    config |= request.options
    return RequestHeader(
        config=config,
        system=request.system or None,
        tools=tuple(_tool(spec) for spec in request.tools) or None,
    )


def _tool(spec: ToolSpec) -> dict[str, JSON]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def request_again(header: RequestHeader, transcript: Transcript) -> ModelRequest:
    """The request that had this header: what `Headers.of` keeps, taken apart again. Raises: CorruptSession."""
    options = dict(header.config)
    model, max_tokens = options.pop("model", None), options.pop("max_tokens", None)
    try:
        return ModelRequest(
            model=convert(model, str),
            system=header.system or "",
            tools=convert(header.tools or (), tuple[ToolSpec, ...]),
            transcript=transcript,
            max_tokens=convert(max_tokens, int | None),
            options=options,
        )
    except ValidationError as error:
        raise CorruptSession(f"a request/header says what no request can: {error}") from error
