"""Every error that Retinue raises, in one shallow tree.

Each class has a stable `code`. Three families: misuse (raised early, says what exists), failure of the world (typed,
raised `from` its cause) and, for the model alone, `ToolFailure`, which the tool pipeline turns into an error result.
An ending of a child or a turn is a value, never an exception.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ActivationClosing",
    "ActivationSetupReleaseFailed",
    "ActivationSetupRevoked",
    "ActivationTeardownFailed",
    "AgentBusy",
    "AgentClosing",
    "AlreadyExists",
    "BadExport",
    "BadInput",
    "Cancelled",
    "ClaimConflict",
    "ConfigError",
    "CorruptSession",
    "DepthExceeded",
    "Draining",
    "DriverFailed",
    "DuplicateChild",
    "DuplicateName",
    "DuplicateProvider",
    "ExternalAgentFailed",
    "IdConflict",
    "LeaseLost",
    "MissingSeam",
    "ModelError",
    "ModelNotConfigured",
    "NoProgress",
    "NoProvider",
    "NotFound",
    "NotQuiet",
    "NotResumable",
    "OpenTurn",
    "ParentUnavailable",
    "PromptError",
    "RetinueError",
    "SchemaError",
    "SchemaTooNew",
    "SessionHeld",
    "SessionNotFound",
    "StoreFailure",
    "StoreLocked",
    "TaskLimit",
    "ToolFailure",
    "Unauthorized",
    "UnknownEvent",
    "UnsupportedCapability",
    "error_record",
    "is_outage",
]


class RetinueError(Exception):
    """Base of the tree. `code` is stable and part of the public interface; the message says what, which, what to do."""

    code: ClassVar[str] = "RETINUE"


# Misuse: the caller can fix it.


class BadInput(RetinueError):
    """An argument is outside its accepted range or form."""

    code = "BAD_INPUT"


class BadExport(BadInput):
    """A file is not a whole, sound export of a tree that this version can read."""

    code = "BAD_EXPORT"


class ConfigError(BadInput):
    """The configuration, a command-line option or an environment variable is wrong."""

    code = "CONFIG"


class ModelNotConfigured(ConfigError):
    """An agent has no model provider or no model name."""

    code = "MODEL_NOT_CONFIGURED"


class SchemaError(BadInput):
    """The schema that a result shall satisfy is none that can be demanded of a child."""

    code = "OUTPUT_SCHEMA"


class MissingSeam(ConfigError):
    """A plugin needs a seam that nobody provides; raised at start, never at first use."""

    code = "MISSING_SEAM"


class DuplicateName(RetinueError):
    """A name is registered twice in one layer."""

    code = "DUPLICATE_NAME"


class DuplicateProvider(DuplicateName):
    """A second provider of children registers under a name that is taken."""

    code = "DUPLICATE_PROVIDER"


class NotFound(RetinueError):
    """A name or id refers to nothing."""

    code = "NOT_FOUND"


class NoProvider(NotFound):
    """No provider of children is registered under that name."""

    code = "NO_PROVIDER"


class SessionNotFound(NotFound):
    """No session with that id (or id prefix) is stored."""

    code = "SESSION_NOT_FOUND"


class AlreadyExists(RetinueError):
    """A session or agent with that id exists already."""

    code = "SESSION_ALREADY_EXISTS"


class IdConflict(RetinueError):
    """An id was used before with other content."""

    code = "ID_CONFLICT"


class Unauthorized(RetinueError):
    """The caller may not act on that agent."""

    code = "UNAUTHORIZED"


class UnsupportedCapability(RetinueError):
    """A provider was asked for something it does not do."""

    code = "UNSUPPORTED_CAPABILITY"


class DepthExceeded(RetinueError):
    """A child would be deeper than the depth cap allows."""

    code = "DEPTH_EXCEEDED"


class AgentClosing(RetinueError):
    """The agent is being disposed and takes nothing any more."""

    code = "AGENT_CLOSING"


class ActivationClosing(RetinueError):
    """The parent or the child is being disposed; nothing new starts and nothing more is said."""

    code = "ACTIVATION_CLOSING"


class Draining(RetinueError):
    """The tree is being drained; nothing new starts in it."""

    code = "DRAINING"


class DuplicateChild(RetinueError):
    """The id that was reserved for a child is taken."""

    code = "DUPLICATE_CHILD"


class ActivationSetupRevoked(RetinueError):
    """What composes children was taken away while a child was being built, so that one is not built."""

    code = "ACTIVATION_SETUP_REVOKED"


class NotResumable(RetinueError):
    """The id names no child that can take a message."""

    code = "NOT_RESUMABLE"


class ParentUnavailable(RetinueError):
    """The parent's session does not exist any more."""

    code = "PARENT_UNAVAILABLE"


class AgentBusy(RetinueError):
    """The operation needs an idle agent."""

    code = "AGENT_BUSY"


class OpenTurn(RetinueError):
    """A fork boundary lies inside an open turn, or a log with an open turn is loaded while its agent lives."""

    code = "OPEN_TURN"


class Cancelled(RetinueError):
    """A host call was cancelled by its caller before it was accepted."""

    code = "CANCELLED"


class TaskLimit(RetinueError):
    """An owner has as many live background tasks as it may have."""

    code = "TASK_LIMIT"


class PromptError(RetinueError):
    """A prompt section cannot be rendered."""

    code = "PROMPT"


# Failure of the world.


class StoreFailure(RetinueError):
    """The store could not do what was asked; nothing of the refused batch was kept."""

    code = "STORE_FAILED"


class StoreLocked(StoreFailure):
    """Another process holds the database's write lock for too long."""

    code = "STORE_LOCKED"


class SchemaTooNew(StoreFailure):
    """The home was written by a newer version."""

    code = "SCHEMA_TOO_NEW"


class NotQuiet(StoreFailure):
    """A settlement came too early: the child has a message to run, or a child of its own is at work."""

    code = "NOT_QUIET"


class ClaimConflict(StoreFailure):
    """A claim did not change exactly the rows it names."""

    code = "CLAIM_CONFLICT"


class LeaseLost(StoreFailure):
    """The lease of this tree expired or was taken over; this process writes nothing more into it."""

    code = "LEASE_LOST"


class ActivationTeardownFailed(RetinueError):
    """Something of a child could not be taken down cleanly. The child is gone all the same."""

    code = "ACTIVATION_TEARDOWN_FAILED"


class ActivationSetupReleaseFailed(RetinueError):
    """What a child was composed with could not all be taken back; everything was tried."""

    code = "ACTIVATION_SETUP_RELEASE_FAILED"


class SessionHeld(RetinueError):
    """Another living process holds the lease of that tree."""

    code = "SESSION_HELD"


class DriverFailed(StoreFailure):
    """What drives an agent broke, by a fault in Retinue or in a layer of a plugin; the agent's log stays as it was."""

    code = "DRIVER_FAILED"


class CorruptSession(StoreFailure):
    """A stored session cannot be decoded, or breaks the rules of a log."""

    code = "CORRUPT_SESSION"


class UnknownEvent(CorruptSession):
    """A log holds an event type that this version does not know and that is not marked ignorable."""

    code = "UNKNOWN_EVENT"


class ModelError(RetinueError):
    """A model request failed.

    `kind` is one of `auth`, `bad-request`, `context-length`, `rate-limit`, `server`, `timeout`, `transport`,
    `empty-response`; `retry_after_s` is what the provider asked for, in seconds. Which kinds are retried is data of
    the retry policy, not of this class.
    """

    code = "MODEL"

    def __init__(
        self, kind: str, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s


class ExternalAgentFailed(RetinueError):
    """A program that works as a child could not be started, ended, or did not keep to its protocol."""

    code = "EXTERNAL_AGENT_FAILED"

    def __init__(self, message: str, *, is_answer: bool = False) -> None:
        super().__init__(message)
        self.is_answer = is_answer
        """The program itself said no, and can still be asked something else."""


class NoProgress(RetinueError):
    """An open turn was resumed again and again and finished no step."""

    code = "NO_PROGRESS"


# For the model: what a tool body raises to answer with an error result.


class ToolFailure(RetinueError):
    """A tool's own refusal or failure. `name` is the code the model and the log see, such as `INVALID_ARGS`."""

    code = "TOOL_FAILED"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def is_outage(error: BaseException) -> bool:
    """The store did not do its work: nothing is wrong with what was asked, which can be asked again later."""
    others = NotQuiet | ClaimConflict | CorruptSession | DriverFailed
    return isinstance(error, StoreFailure) and not isinstance(error, others)


def error_record(error: BaseException) -> tuple[str, str]:
    """The (code, message) of any exception; foreign ones are `UNKNOWN` with their cause chain in one line."""
    match error:
        case ModelError():
            return f"MODEL_{error.kind.upper().replace('-', '_')}", str(error)
        case ToolFailure():
            return error.name, str(error)
        case RetinueError():
            return error.code, str(error)
        case _:
            return "UNKNOWN", " <- ".join(_chain(error))


def _chain(error: BaseException) -> list[str]:
    parts: list[str] = []
    seen: set[int] = set()
    todo: BaseException | None = error
    while todo is not None and id(todo) not in seen:
        seen.add(id(todo))
        inner: tuple[BaseException, ...] = getattr(todo, "exceptions", ())
        text = "; ".join(" <- ".join(_chain(e)) for e in inner) if inner else str(todo)
        parts.append(f"{type(todo).__name__}: {text}" if text else type(todo).__name__)
        todo = todo.__cause__ or (None if todo.__suppress_context__ else todo.__context__)
    return parts
