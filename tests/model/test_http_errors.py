"""Every refusal of a server becomes one ModelError with the right kind and the provider's words."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from retinue.model.adapters.http_errors import bounded, retry_after_s, status_error


def error(status: int, body: Any = b"", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status_error("test", status, {k.replace("_", "-"): v for k, v in headers.items()}, data, ("sk-secret",))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, "bad-request"),
        (400, "bad-request"),
        (401, "auth"),
        (402, "auth"),
        (403, "auth"),
        (404, "bad-request"),
        (408, "timeout"),
        (413, "bad-request"),
        (422, "bad-request"),
        (429, "rate-limit"),
        (500, "server"),
        (502, "server"),
        (503, "server"),
        (504, "server"),
        (529, "server"),
    ],
)
def test_a_status_has_a_kind(status: int, kind: str) -> None:
    found = error(status, {"error": {"message": "the reason"}})
    assert (found.kind, found.status) == (kind, status)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "too much", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
        (400, {"error": {"message": "This model's maximum context length is 131072 tokens. However, you requested 9"}}),
        (400, {"object": "error", "message": "The decoder prompt is longer than the maximum model length of 8."}),
        (400, {"error": {"code": 400, "message": "the request exceeds the available context size", "type": "x"}}),
        (400, {"error": {"code": 400, "message": "request (9 tokens)", "type": "exceed_context_size_error"}}),
        (400, {"error": "prompt too long; exceeded max context length by 4 tokens"}),
        (500, {"error": "the input length exceeds the context length"}),
        (400, {"error": {"message": "This endpoint's maximum context length is 8 tokens. However", "code": 400}}),
        (400, [{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens"}}]),
        (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
        (400, {"error": {"message": "Provider error", "metadata": {"raw": "maximum context length is 8"}}}),
    ],
)  # fmt: skip
def test_a_conversation_that_is_too_long_is_recognised(status: int, body: Any) -> None:
    assert error(status, body).kind == "context-length"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "max_tokens must be positive"}},
        {"error": {"message": "unknown parameter 'context'"}},
        {"error": {"message": "this model does not support images"}},
    ],
)
def test_other_bad_requests_are_not_taken_for_it(body: Any) -> None:
    assert error(400, body).kind == "bad-request"


def test_an_exhausted_account_is_not_waited_for() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota", "type": "x"}}
    assert error(429, body).kind == "auth"
    assert error(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}).kind == "rate-limit"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "the reason"}}, "the reason"),
        ({"error": "the reason"}, "the reason"),
        ({"message": "the reason"}, "the reason"),
        ({"detail": "the reason"}, "the reason"),
        ({"detail": [{"loc": ["body"], "msg": "the reason"}]}, "the reason"),
        ([{"error": {"message": "the reason"}}], "the reason"),
        (b"<h1>\n  the reason</h1>", "<h1> the reason</h1>"),
        (b"", "no explanation"),
        (b"\xff\xfe", "\ufffd"),
    ],
)
def test_the_message_holds_the_providers_words(body: Any, text: str) -> None:
    message = str(error(400, body))
    assert text in message
    assert "test" in message
    assert "400" in message


def test_the_message_is_bounded_and_holds_no_key() -> None:
    found = str(error(401, {"error": {"message": "wrong key sk-secret! " + "ü" * 9000}}))
    assert "sk-secret" not in found
    assert len(found.encode()) <= 2000
    assert bounded("ü" * 1000) == "ü" * 1000


def test_a_redirect_names_the_host_it_points_to_and_nothing_more() -> None:
    found = str(error(308, Location="https://other.example/v1?token=hidden"))
    assert "other.example" in found
    assert "hidden" not in found


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "-4"}, 0.0),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({"retry-after-ms": "soon", "Retry-After": "9"}, 9.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_the_wish_to_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_the_wish_to_wait_may_be_a_date() -> None:
    then = datetime.now(UTC) + timedelta(hours=1)
    found = error(429, b"", Retry_After=format_datetime(then, usegmt=True))
    assert 3000 < found.retry_after_s <= 3600
