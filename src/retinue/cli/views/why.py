"""A request that was made again, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.agent.rebuild import LoggedRequest, Rebuilt
from retinue.base.json import JSONObject, decode
from retinue.cli.text import brief, one_line
from retinue.model.encoding import SentBody
from retinue.session.events import SessionHeader

__all__ = ["body_text", "why_lines", "why_object"]


def why_lines(header: SessionHeader, found: Rebuilt) -> Iterator[str]:
    """The verdict, what there is to say about it, and what the request was made of."""
    request = found.request
    yield found.verdict + (f"  {_bytes(found.made)}" if found.made is not None else "")
    if found.reason:
        yield f"  {one_line(found.reason)}"
    place = "copied from the parent's log" if request.first < (header.seed_length or 0) else request.fate
    yield f"  turn {request.turn}, step {request.step} of {header.id}: events {request.first} on, {place}"
    if request.context is not None:
        made_by = request.context.encoder
        by = "" if made_by is None else f", encoder {brief(made_by.name)} version {made_by.version}"
        yield f"  model {brief(f'{request.context.provider}:{request.context.model}')}{by}"
    if request.header is not None:
        system, tools = request.header.header.system or "", request.header.header.tools or ()
        yield (
            f"  system prompt of {len(system)} characters, {len(tools)} tools "
            f"(event {request.header_seq}, {request.header.reason}), {request.messages} messages"
        )


def _bytes(sent: SentBody) -> str:
    return f"{sent.size} bytes, SHA-256 {sent.digest}..."


def body_text(found: Rebuilt) -> bytes:
    """The body as it was sent; empty if it cannot be made."""
    return b"".join(found.body or ())


def why_object(header: SessionHeader, found: Rebuilt, *, show: bool) -> JSONObject:
    """The same as one JSON object."""
    request = found.request
    encoder = None if request.context is None else request.context.encoder
    shown: JSONObject = {
        "session_id": header.id,
        "verdict": found.verdict,
        "reason": found.reason or None,
        "sent": _sent(request.sent),
        "rebuilt": _sent(found.made),
        "encoder": None if encoder is None else {"name": encoder.name, "version": encoder.version},
        **_place(request),
    }
    if show:
        shown["body"] = None if found.body is None else decode(body_text(found))
    return shown


def _sent(sent: SentBody | None) -> JSONObject | None:
    return None if sent is None else {"digest": sent.digest, "size": sent.size}


def _place(request: LoggedRequest) -> JSONObject:
    return {
        "turn": request.turn,
        "step": request.step,
        "first": request.first,
        "fate": request.fate,
        "header": None if request.header is None else request.header_seq,
        "messages": request.messages,
    }
