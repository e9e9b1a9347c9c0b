"""A streamed reply from its first event to its end, in every format: what a cut spoils, and how long an end may take.

Whether a reply is whole is told by what the model said, never by how the connection ended: servers leave out their
closing marks, and some mark the end of a stream by closing alone, which a cut does as well.
"""

from __future__ import annotations

import json
from typing import Protocol

from retinue.model.adapters.sse import EventSplitter
from retinue.model.adapters.transport import Reply

__all__ = ["EventReader", "read_events"]

_END_GRACE_S = 0.25
"""From the closing mark to the end of the body, which is in the same packet or close behind."""


class EventReader(Protocol):
    """Takes the events of one reply."""

    @property
    def is_finished(self) -> bool:
        """The model has said why it stopped."""
        ...

    @property
    def is_closed(self) -> bool:
        """The stream's closing mark came."""
        ...

    def event(self, data: bytes) -> None:
        """The data of one event was taken. Raises: ModelError for an error or for what is no event of the format."""
        ...


async def read_events(reply: Reply, reader: EventReader) -> None:
    """The reader has every event that came. Raises: as `EventReader.event` and `Reply.read`.

    Once the model has finished, the rest must come within the time that a rest may take. What a cut left of an event
    is no event.
    """
    splitter = EventSplitter()
    is_rest = False
    while chunk := await reply.read():
        for data in splitter.feed(chunk):
            reader.event(data)
        if reader.is_closed:
            if reader.is_finished:
                # The end of the body gives the connection back.
                reply.limit(_END_GRACE_S)
                await reply.read_all()
            return
        if not is_rest and reader.is_finished:
            is_rest = True
            reply.limit_rest()
    for data in splitter.close():
        if _is_json(data):
            reader.event(data)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
