"""What all values of the protocol have in common on the wire, version 1, as far as Retinue speaks it.

Source: https://agentclientprotocol.com, JSON Schema of version 1; what concerns subagents is from its unstable part and
sent to clients that announce it alone.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["VERSION", "Received", "Sent"]

VERSION = 1
"""Of the protocol."""


class Received(Struct, frozen=True, kw_only=True, rename="camel"):
    """What clients send. Fields that they may send and Retinue does not need are passed over."""


class Sent(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What clients are sent."""
