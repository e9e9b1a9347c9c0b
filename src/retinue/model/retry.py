"""When a failed model request is tried again, as data."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from retinue.errors import ModelError

__all__ = ["RetryPolicy"]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Exponential back-off with jitter; durations in seconds.

    Authentication, bad-request and context-length failures are never retried: the same request would fail again.
    """

    max_retries: int = 5
    first_delay_s: float = 0.5
    max_delay_s: float = 10.0
    jitter: float = 0.1
    """Each delay is spread by up to this share of itself."""
    kinds: frozenset[str] = frozenset({"rate-limit", "server", "timeout", "transport", "empty-response"})

    def delay_s(self, error: ModelError, failures: int, random: Callable[[], float]) -> float | None:
        """Seconds to wait after the `failures`-th failure (from 1), or None to give up.

        What the provider asked for is honoured up to the maximum. `random` answers in [0, 1).
        """
        if error.kind not in self.kinds or failures > self.max_retries:
            return None
        delay = min(self.first_delay_s * 2 ** (failures - 1), self.max_delay_s)
        if error.retry_after_s is not None:
            return min(max(error.retry_after_s, 0.0), self.max_delay_s)
        return delay * (1 + self.jitter * (2 * random() - 1))
