"""A model client for work that must not ask any model: whoever asks it fails."""

from __future__ import annotations

from typing import NoReturn

from retinue.errors import ModelNotConfigured
from retinue.model.client import Body, ModelRequest, Sink, Transcript

__all__ = ["UnavailableClient"]


class UnavailableClient:
    """A ModelClient that can be registered and not used."""

    provider = "unavailable"

    def context_window(self, model: str) -> int | None:
        """See ModelClient."""
        return None

    def transcript(self) -> Transcript:
        """Raises: ModelNotConfigured."""
        _refuse()

    def encode(self, request: ModelRequest) -> Body:
        """Raises: ModelNotConfigured."""
        _refuse()

    async def stream(self, request: ModelRequest, body: Body, sink: Sink) -> None:
        """Raises: ModelNotConfigured."""
        _refuse()

    async def aclose(self) -> None:
        """See ModelClient."""


def _refuse() -> NoReturn:
    raise ModelNotConfigured("this command asks no model")
