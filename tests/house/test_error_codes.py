"""Codes of errors are public: models, scripts and logs of earlier versions hold them."""

import inspect

from retinue import errors
from retinue.errors import RetinueError

CODES = {
    "ActivationClosing": "ACTIVATION_CLOSING",
    "ActivationSetupReleaseFailed": "ACTIVATION_SETUP_RELEASE_FAILED",
    "ActivationSetupRevoked": "ACTIVATION_SETUP_REVOKED",
    "ActivationTeardownFailed": "ACTIVATION_TEARDOWN_FAILED",
    "AgentBusy": "AGENT_BUSY",
    "AgentClosing": "AGENT_CLOSING",
    "AlreadyExists": "SESSION_ALREADY_EXISTS",
    "BadExport": "BAD_EXPORT",
    "BadInput": "BAD_INPUT",
    "Cancelled": "CANCELLED",
    "ClaimConflict": "CLAIM_CONFLICT",
    "ConfigError": "CONFIG",
    "CorruptSession": "CORRUPT_SESSION",
    "DepthExceeded": "DEPTH_EXCEEDED",
    "Draining": "DRAINING",
    "DriverFailed": "DRIVER_FAILED",
    "DuplicateChild": "DUPLICATE_CHILD",
    "DuplicateName": "DUPLICATE_NAME",
    "DuplicateProvider": "DUPLICATE_PROVIDER",
    "ExternalAgentFailed": "EXTERNAL_AGENT_FAILED",
    "IdConflict": "ID_CONFLICT",
    "LeaseLost": "LEASE_LOST",
    "MissingSeam": "MISSING_SEAM",
    "ModelError": "MODEL",
    "ModelNotConfigured": "MODEL_NOT_CONFIGURED",
    "NoProgress": "NO_PROGRESS",
    "NoProvider": "NO_PROVIDER",
    "NotFound": "NOT_FOUND",
    "NotQuiet": "NOT_QUIET",
    "NotResumable": "NOT_RESUMABLE",
    "OpenTurn": "OPEN_TURN",
    "ParentUnavailable": "PARENT_UNAVAILABLE",
    "PromptError": "PROMPT",
    "RetinueError": "RETINUE",
    "SchemaError": "OUTPUT_SCHEMA",
    "SchemaTooNew": "SCHEMA_TOO_NEW",
    "SessionHeld": "SESSION_HELD",
    "SessionNotFound": "SESSION_NOT_FOUND",
    "StoreFailure": "STORE_FAILED",
    "StoreLocked": "STORE_LOCKED",
    "TaskLimit": "TASK_LIMIT",
    "ToolFailure": "TOOL_FAILED",
    "Unauthorized": "UNAUTHORIZED",
    "UnknownEvent": "UNKNOWN_EVENT",
    "UnsupportedCapability": "UNSUPPORTED_CAPABILITY",
}
"""Source: behaviour CE-01 and SE-20 for those of delegation and of sessions. A code that is here stays as it is."""


def test_every_error_has_the_code_that_it_always_had() -> None:
    found = {
        name: error.code
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, RetinueError)
    }
    assert {name: found.get(name) for name in CODES} == CODES
