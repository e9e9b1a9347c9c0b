"""The client for every server that speaks the OpenAI chat format: DeepSeek, OpenAI, Ollama, vLLM, llama.cpp and others.

What differs between servers is data (`Quirks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from retinue.model.adapters.endpoint import Endpoint
from retinue.model.adapters.openai_encoder import ChatEncoder
from retinue.model.adapters.openai_reply import ReplyReader
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.transport import Timeouts
from retinue.model.adapters.wire_client import WireClient
from retinue.model.prices import Price

__all__ = ["openai_chat_client"]


def openai_chat_client(
    *,
    provider: str,
    base_url: str,
    api_key: str | None = None,
    quirks: Quirks | None = None,
    context_window: Callable[[str], int | None] | None = None,
    price: Callable[[str], Price | None] | None = None,
    timeouts: Timeouts | None = None,
    headers: Mapping[str, str] | None = None,
    trust_env: bool = False,
) -> WireClient:
    """A client for the server at `base_url`, which is the address up to, not including, `/chat/completions`.

    `headers` are sent in addition. Raises: ConfigError if an address or header cannot be used.
    """
    quirks = quirks or Quirks()
    endpoint = Endpoint(
        provider=provider,
        base_url=base_url,
        path="/chat/completions",
        headers={
            "Accept": "text/event-stream" if quirks.stream else "application/json",
            **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            **(headers or {}),
        },
        timeouts=timeouts,
        trust_env=trust_env,
    )
    reader = ReplyReader if quirks.stream else partial(ReplyReader, is_streamed=False)
    return WireClient(endpoint, ChatEncoder(provider, quirks), reader, context_window=context_window, price=price)
