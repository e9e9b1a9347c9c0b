"""The client for the Anthropic Messages format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retinue.model.adapters.anthropic_encoder import AnthropicEncoder
from retinue.model.adapters.anthropic_reply import AnthropicReader
from retinue.model.adapters.endpoint import Endpoint
from retinue.model.adapters.transport import Timeouts
from retinue.model.adapters.wire_client import WireClient
from retinue.model.prices import Price

__all__ = ["VERSION", "anthropic_client"]

VERSION = "2023-06-01"
"""Of the wire format. Source: Messages API, header `anthropic-version`."""


def anthropic_client(
    *,
    provider: str,
    base_url: str,
    api_key: str | None = None,
    is_cached: bool = True,
    context_window: Callable[[str], int | None] | None = None,
    output_ceiling: Callable[[str], int | None] | None = None,
    price: Callable[[str], Price | None] | None = None,
    timeouts: Timeouts | None = None,
    headers: Mapping[str, str] | None = None,
    trust_env: bool = False,
) -> WireClient:
    """A client for the server at `base_url`, which is the address up to, not including, `/v1/messages`.

    `headers` are sent in addition. `output_ceiling` gives what a request of a model asks for if the configuration says
    nothing, since the format demands a number. Raises: ConfigError if an address or header cannot be used.
    """
    endpoint = Endpoint(
        provider=provider,
        base_url=base_url,
        path="/v1/messages",
        headers={
            "Accept": "text/event-stream",
            "anthropic-version": VERSION,
            **({"x-api-key": api_key} if api_key else {}),
            **(headers or {}),
        },
        timeouts=timeouts,
        trust_env=trust_env,
    )
    encoder = AnthropicEncoder(provider, is_cached=is_cached, output_ceiling=output_ceiling)
    return WireClient(endpoint, encoder, AnthropicReader, context_window=context_window, price=price)
