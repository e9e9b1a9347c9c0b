"""Encoders by the name that logs know them under. Needs no key, no address and no network library."""

from __future__ import annotations

from retinue.model.adapters.anthropic_encoder import AnthropicEncoder
from retinue.model.adapters.openai_encoder import ChatEncoder
from retinue.model.encoding import Encoder, Encoding

__all__ = ["encoder_again"]


def encoder_again(provider: str, encoding: Encoding) -> Encoder | None:
    """The encoder that had this encoding, in its present version; None for a name that no adapter here has.

    Raises: BadInput for options that it never had.
    """
    match encoding.name:
        case "openai-chat":
            return ChatEncoder.again(provider, encoding)
        case "anthropic-messages":
            return AnthropicEncoder.again(provider, encoding)
        case _:
            return None
