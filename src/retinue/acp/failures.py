"""Errors of Retinue as errors of the protocol."""

from __future__ import annotations

from retinue.base.frames import AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, RESOURCE_NOT_FOUND, Failure
from retinue.errors import (
    BadInput,
    ConfigError,
    IdConflict,
    ModelNotConfigured,
    RetinueError,
    SessionNotFound,
    error_record,
)

__all__ = ["as_failure"]


def as_failure(error: RetinueError) -> Failure:
    """The failure that a client is told of; `data.code` is Retinue's own code."""
    code, message = error_record(error)
    match error:
        case ModelNotConfigured():
            number = AUTH_REQUIRED
        case SessionNotFound():
            number = RESOURCE_NOT_FOUND
        case ConfigError():
            number = INTERNAL
        case BadInput() | IdConflict():
            number = INVALID_PARAMS
        case _:
            number = INTERNAL
    return Failure(number, message, {"code": code})
