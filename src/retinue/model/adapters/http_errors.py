"""From what a server answered to the one ModelError that says it: kind, the provider's own words, when to come back.

Shared by all adapters. The texts are bounded and free of the secrets that the transport knows.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from retinue.base.forms import MASK, mask_forms
from retinue.base.json import JSON, decode
from retinue.errors import ModelError

__all__ = ["bounded", "payload_error", "retry_after_s", "scrubbed", "status_error", "unreadable"]

_MAX_BYTES = 2000

# OpenAI, DeepSeek, vLLM, OpenRouter: "maximum context length is N tokens"; vLLM: "maximum model length";
# llama.cpp: exceed_context_size_error, "exceeds the available context size"; Ollama: "exceeds the context length",
# "exceeded max context length"; Gemini: "input token count (N) exceeds the maximum"; Anthropic: "prompt is too long".
_CONTEXT = (
    r"(?i)context_length_exceeded|exceed_context_size|maximum context length|max(imum)? model len(gth)?"
    r"|exceed\w* (the |max |maximum )*(available |model's )?context|context (window|length|size)[^.]{0,40}exceed"
    r"|input token count[^.]{0,40}exceeds|(prompt|input) (is )?too long|longer than the (model's )?context"
)
_QUOTA = r"(?i)insufficient_quota|insufficient balance|insufficient_balance|billing_hard_limit"
_CODES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "invalid_argument": 400,
    "not_found_error": 404,
    "timeout": 408,
    "request_timeout": 408,
    "overloaded_error": 529,
    "server_error": 500,
    "api_error": 500,
}


def status_error(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, secrets: tuple[str, ...] = ()
) -> ModelError:
    """The error for an answer with a status other than 2xx. `headers` looks names up in any case."""
    text, codes = _words(body)
    if 300 <= status < 400:
        target = urlsplit(headers.get("Location", "")).netloc or "another path of the same host"
        text = f"it redirects to {target}, which is not followed; set base_url to the final address"
    message = f"{provider} answered HTTP {status}: {text or 'no explanation'}{_advice(status)}"
    return ModelError(
        _kind(status, " ".join((text, *codes))),
        bounded(scrubbed(message, secrets)),
        status=status,
        retry_after_s=retry_after_s(headers),
    )


def payload_error(provider: str, payload: JSON, secrets: tuple[str, ...] = ()) -> ModelError:
    """The error for an error object that arrived inside a successful answer, such as in the middle of a stream."""
    text, codes = _read(payload)
    status = next((s for code in codes if (s := _status(code))), None)
    kind = _kind(status or 500, " ".join((text, *codes)))
    message = f"{provider} broke off with an error: {text or ' '.join(codes) or 'no explanation'}"
    return ModelError(kind, bounded(scrubbed(message, secrets)), status=status)


def unreadable(provider: str, what: str, data: bytes, why: Exception, secrets: tuple[str, ...] = ()) -> ModelError:
    """The error for data inside a successful answer that is `what`, such as "no event", as `why` says."""
    said = bounded(data[:500].decode(errors="replace"))
    return ModelError("server", scrubbed(f"{provider} sent what is {what} ({why}): {said}", secrets))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as an HTTP date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0.0)
    value = headers.get("Retry-After")
    seconds = _number(value)
    if seconds is not None:
        return max(seconds, 0.0)
    if not value:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def scrubbed(text: str, secrets: tuple[str, ...]) -> str:
    """`text` without any of the secrets and what has the form of one.

    Words like `EMPTY`, which local servers take for a key, are none.
    """
    for secret in secrets:
        if len(secret) >= 8:
            text = text.replace(secret, MASK)
    return mask_forms(text)


def bounded(text: str) -> str:
    """`text` in at most 2 kB of UTF-8."""
    data = text.encode(errors="replace")
    if len(data) <= _MAX_BYTES:
        return data.decode()
    return data[: _MAX_BYTES - 3].decode(errors="ignore") + "…"


def _kind(status: int, said: str) -> str:
    match status:
        case 401 | 402 | 403:
            return "auth"
        case 429:
            # Waiting does not refill an account.
            return "auth" if re.search(_QUOTA, said) else "rate-limit"
        case _ if re.search(_CONTEXT, said):
            return "context-length"
        case 408:
            return "timeout"
        case _ if status >= 500:
            return "server"
        case _:
            return "bad-request"


def _advice(status: int) -> str:
    match status:
        case 401 | 403:
            return " (check the API key)"
        case 404 | 405:
            return " (check the model's name and base_url)"
        case _:
            return ""


def _status(code: str) -> int | None:
    if code.isdigit():
        return int(code) if 400 <= int(code) < 600 else None
    return _CODES.get(code.lower())


def _words(body: bytes) -> tuple[str, tuple[str, ...]]:
    try:
        return _read(decode(body))
    except (ValueError, RecursionError):
        return " ".join(body[: 4 * _MAX_BYTES].decode(errors="replace").split()), ()


def _read(value: JSON) -> tuple[str, tuple[str, ...]]:
    """The message and the codes of an error object, whichever of the usual shapes it has."""
    match value:
        case [first, *_]:
            return _read(first)
        case {"error": dict() | list() as inner}:
            return _read(inner)
        case {"error": str(text)}:
            return text, ()
        case dict():
            text = next((t for k in ("message", "msg", "detail") if isinstance(t := value.get(k), str) and t), "")
            match value:
                case {"metadata": {"raw": str(raw)}} if raw not in text:
                    text = f"{text}: {raw}"
                case {"detail": list() | dict() as detail} if not text:
                    text = _read(detail)[0]
                case _:
                    pass
            codes = (value.get(key) for key in ("code", "type", "status"))
            return text, tuple(str(code) for code in codes if isinstance(code, (str, int)) and code)
        case str():
            return value, ()
        case _:
            return "", ()


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
