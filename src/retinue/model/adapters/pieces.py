"""What the encoders of all formats share: lists of tools that are encoded once, and fields that nobody else may set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from retinue.base.json import JSON, JSONObject
from retinue.base.recent import Recent
from retinue.errors import BadInput, ConfigError
from retinue.model.adapters.wire import encode_wire
from retinue.model.client import ModelRequest, ToolSpec

__all__ = ["KeptTools", "tail_of", "transcript_of"]

T = TypeVar("T")


class KeptTools:
    """The `tools` field of requests. A list that many agents share is encoded once."""

    __slots__ = ("_kept", "_render")

    def __init__(self, render: Callable[[ToolSpec], JSON]) -> None:
        """`render` gives one tool as the format has it."""
        self._render = render
        self._kept: Recent[int, tuple[tuple[ToolSpec, ...], bytes]] = Recent()

    def field(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """The field, with a comma before it; nothing without tools."""
        if not tools:
            return b""
        kept = self._kept.get(id(tools))
        if kept is None:
            # The tuple is kept beside its bytes: as long as it lives, no other has its identity.
            kept = (tools, b',"tools":' + encode_wire([self._render(tool) for tool in tools]))
            self._kept.put(id(tools), kept)
        return kept[1]


def tail_of(fields: JSONObject, request: ModelRequest, owned: Mapping[str, str], provider: str) -> bytes:
    """The end of a body: `fields`, then the request's own options.

    Raises: ConfigError for an option in `owned`, whose values say what to set instead.
    """
    for name, value in request.options.items():
        if name in owned:
            raise ConfigError(f"option {name!r} of {provider!r} is not free; set {owned[name]} instead")
        fields[name] = value
    return b"," + encode_wire(fields)[1:]


def transcript_of(request: ModelRequest, kind: type[T]) -> T:
    """The request's transcript. Raises: BadInput if another client made it."""
    transcript = request.transcript
    if not isinstance(transcript, kind):
        raise BadInput(f"the transcript is a {type(transcript).__name__}; take one from this client's transcript()")
    return transcript
