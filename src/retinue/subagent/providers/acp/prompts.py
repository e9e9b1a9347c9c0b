"""What an external agent is owed: a fold of its child's log. The program keeps the conversation, so only what is new
is given to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.base.json import JSONObject
from retinue.model.content import InputBlock, Text, UserMessage
from retinue.session.events import AssistantReply, Event, ExternalPrompt, TurnEnd

__all__ = ["Due", "blocks_of", "due"]

AGAIN = (
    "[note] You were cut off while you worked on what follows: the program was ended and has been started again. Look "
    "at what is done already, and go on where you stopped. If you have not begun, begin now."
)
"""Before what may have been given to the program already."""
_UNSEEN = "[an image that this agent cannot be shown]"


class Due(Struct, frozen=True, kw_only=True):
    """What the program is to be given next."""

    messages: tuple[UserMessage, ...]
    session: str | None
    """The program's own id of the conversation; None if it has none yet."""
    is_again: bool
    """Some or all of it may have reached the program before: no answer to it is in the log."""
    is_first: bool
    """Nobody ever heard a word from that session, so nothing is lost with it."""


def due(events: Sequence[Event]) -> Due:
    """What is new since the program last answered, or since somebody stopped it before it did.

    What failed or was cut off without a word may never have reached it, so that is still owed.
    """
    new: list[UserMessage] = []
    given: list[UserMessage] = []
    session: str | None = None
    is_open, is_first = False, True
    for event in events:
        match event.data:
            case UserMessage() as message:
                new.append(message)
            case ExternalPrompt() as prompt:
                given = [*given, *new] if is_open else new
                session, new, is_open = prompt.session, [], True
            case AssistantReply() if is_open:
                given, is_open, is_first = [], False, False
            case TurnEnd(reason=reason) if is_open and reason not in ("error", "interrupted"):
                given, is_open = [], False
            case _:
                pass
    return Due(messages=(*given, *new) if is_open else tuple(new), session=session, is_again=is_open, is_first=is_first)


def blocks_of(due: Due, *, images: bool) -> list[JSONObject]:
    """The content of the prompt, in the protocol's form; pictures only if the program takes `images`."""
    blocks = [_block(block, images) for message in due.messages for block in message.content]
    return [{"type": "text", "text": AGAIN}, *blocks] if due.is_again else blocks


def _block(block: InputBlock, images: bool) -> JSONObject:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if images:
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": "text", "text": _UNSEEN}
