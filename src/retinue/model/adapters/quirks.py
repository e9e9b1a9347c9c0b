"""How servers that speak the OpenAI chat format differ from each other, as data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Quirks"]


class Quirks(Struct, frozen=True, kw_only=True):
    """One server's deviations. The defaults suit most servers; a configuration may override any of them."""

    stream: bool = True
    """False asks for the whole reply at once; it still reaches the sink as chunks."""
    stream_usage: bool = True
    """Ask for usage at the end of a stream (`stream_options.include_usage`)."""
    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = None
    """The field in which earlier reasoning goes back to the server; None sends none of it.

    DeepSeek's thinking mode refuses a history in which a message with tool calls lacks the field, so such a message
    carries it even when it is empty. Source: DeepSeek API guide "Thinking Mode", tool calls.
    """
    call_signatures: bool = False
    """Tool calls carry Gemini's thought signature, which must come back.

    It travels as the signature of a reasoning block and belongs to the first call of its message. Source: Gemini API
    guide "Thought signatures", OpenAI compatibility.
    """
    images: bool = True
    """False replaces images by a note: a server that knows only text would refuse every later request as well."""
