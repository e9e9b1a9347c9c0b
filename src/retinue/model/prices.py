"""What tokens cost, as data: prices of a model and the cost of a usage."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from retinue.model.content import Usage

__all__ = ["Price", "cost_usd", "price_of"]

_MILLION = 1_000_000


_SUFFIX = re.compile(r"-(latest|\d{4}-?\d{2}-?\d{2})")


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. What is read from the provider's cache, or written to it, may cost otherwise."""

    input: float
    output: float
    cached: float | None = None
    """None: as much as other input."""
    cache_write: float | None = None
    """None: as much as other input."""


def cost_usd(price: Price, usage: Usage) -> float:
    """What `usage` costs at `price`, in US dollars."""
    plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    return (
        plain * price.input
        + usage.cached_tokens * cached
        + usage.cache_write_tokens * written
        + usage.output_tokens * price.output
    ) / _MILLION


def price_of(model: str, prices: Iterable[tuple[str, Price]]) -> Price | None:
    """The price of `model`, or None if it is not known: a relative of a similar name may cost something else.

    A date at the end of a name, or `-latest`, makes no other model.
    """
    for name, price in prices:
        rest = model.removeprefix(name)
        if model == name or (rest != model and _SUFFIX.fullmatch(rest)):
            return price
    return None
