"""What a tool result shows: no secrets, and not too much. The whole of a longer one is kept in a private file.

Secrets are known values, such as keys of model providers, always; and what has the form of one, if so configured. They
are taken out of the program's own log as well.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct

from retinue.base.forms import KNOWN_FORMS, Form
from retinue.errors import ConfigError
from retinue.host.host import Host
from retinue.tools.output import INLINE_LIMIT, bound_result
from retinue.tools.secrets import MASK, Secrets, redact_result
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["OPTIONS", "OutputConfig", "plugin"]


class OutputConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much is shown."""

    inline_limit: int = INLINE_LIMIT
    """Bytes of text in one result."""
    redact: bool = True
    """What has the form of a secret is masked in results: keys and tokens of well-known services, private keys, bearer
    tokens, passwords in addresses. Known values are masked always."""
    patterns: tuple[str, ...] = ()
    """Further forms, as regular expressions of Python that fit within a line; a group named `secret` is the part that
    is masked."""


OPTIONS = OutputConfig


@asynccontextmanager
async def plugin(host: Host, config: OutputConfig) -> AsyncGenerator[None]:
    """Every result is bounded and shows no secret of the host. Without a home, what is cut off is not kept.

    Raises: ConfigError for a pattern that is none, or that fits nothing at all.
    """
    home, secrets = host.options.home, host.secrets

    async def finish(tool: Tool | None, context: ToolContext, result: ToolResult) -> ToolResult:
        limit = tool.output_limit if tool is not None and tool.output_limit is not None else config.inline_limit
        folder = None if home is None else home / "spill"
        return await bound_result(redact_result(result, secrets), limit=limit, folder=folder, key=context.key)

    own = tuple(_form(text) for text in config.patterns)
    with (
        secrets.add_forms((*KNOWN_FORMS, *own) if config.redact else own),
        host.add_finisher(finish),
        _masked_log(secrets),
    ):
        yield


def _form(text: str) -> Form:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ConfigError(f"plugins.output.patterns: {text!r} is no regular expression: {error}") from error
    if pattern.match("") or pattern.search(MASK):
        raise ConfigError(
            f"plugins.output.patterns: {text!r} fits an empty text or {MASK}; it would never come to rest"
        )
    return Form(text)


@contextmanager
def _masked_log(secrets: Secrets) -> Generator[None]:
    """No record of the program's log holds a secret."""

    def mask(record: logging.LogRecord) -> bool:
        record.msg, record.args = secrets.mask(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = secrets.mask(logging.Formatter().formatException(record.exc_info))
        return True

    log = logging.getLogger("retinue")
    log.addFilter(mask)
    try:
        yield
    finally:
        log.removeFilter(mask)
