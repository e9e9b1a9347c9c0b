"""Which failures are tried again, and after how long."""

import pytest

from retinue.errors import ModelError
from retinue.model.retry import RetryPolicy


def middle() -> float:
    return 0.5


@pytest.mark.parametrize("kind", ["rate-limit", "server", "timeout", "transport", "empty-response"])
def test_failures_that_may_pass_are_retried_five_times(kind: str) -> None:
    delays = [RetryPolicy().delay_s(ModelError(kind, "x"), n, middle) for n in range(1, 7)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, None]


@pytest.mark.parametrize("kind", ["auth", "bad-request", "context-length"])
def test_failures_that_would_come_again_are_not(kind: str) -> None:
    assert RetryPolicy().delay_s(ModelError(kind, "x", retry_after_s=1), 1, middle) is None


def test_the_delay_grows_to_its_maximum() -> None:
    policy = RetryPolicy(max_retries=50)
    assert policy.delay_s(ModelError("server", "x"), 40, middle) == 10.0


def test_jitter_spreads_the_delay_by_its_share() -> None:
    policy = RetryPolicy()
    assert policy.delay_s(ModelError("server", "x"), 1, lambda: 0.0) == pytest.approx(0.45)
    assert policy.delay_s(ModelError("server", "x"), 1, lambda: 1.0) == pytest.approx(0.55)


def test_what_the_provider_asks_for_is_honoured_up_to_the_maximum() -> None:
    policy = RetryPolicy()
    assert policy.delay_s(ModelError("rate-limit", "x", retry_after_s=3.0), 1, middle) == 3.0
    assert policy.delay_s(ModelError("rate-limit", "x", retry_after_s=0.0), 3, middle) == 0.0
    assert policy.delay_s(ModelError("rate-limit", "x", retry_after_s=900.0), 1, middle) == 10.0


def test_no_retries_means_none() -> None:
    assert RetryPolicy(max_retries=0).delay_s(ModelError("server", "x"), 1, middle) is None
