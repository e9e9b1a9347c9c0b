"""Rendering: from sections and a context to the text of a prompt. Runs at every step, so templates are parsed once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from retinue.errors import PromptError
from retinue.prompt.sections import AssemblyContext, PromptRegistry, Section

__all__ = ["assemble", "render"]

_VARIABLE = re.compile(r"[a-z][a-z0-9_]*\Z")


class _Variable(NamedTuple):
    name: str


_Parts: TypeAlias = tuple[str | _Variable, ...]


def assemble(registry: PromptRegistry, context: AssemblyContext) -> str:
    """The effective sections in their order, joined by one blank line; empty ones vanish.

    Raises: PromptError if a section cannot be rendered, or if two sections declare themselves complete.
    """
    texts: list[str] = []
    whole: tuple[str, str] | None = None
    for section in registry.sections:
        if section.tool is not None and section.tool not in context.tools:
            continue
        text = _text(section, context)
        if not text:
            continue
        if section.complete:
            if whole is not None:
                raise PromptError(
                    f"prompt sections {whole[0]!r} and {section.name!r} both claim to be the whole prompt"
                )
            whole = (section.name, text)
        texts.append(text)
    return _joined(tuple(texts)) if whole is None else whole[1]


@lru_cache(maxsize=256)
def _joined(texts: tuple[str, ...]) -> str:
    """One object for equal prompts, so that a thousand children share theirs."""
    return "\n\n".join(texts)


def render(text: str, context: AssemblyContext) -> str:
    """`text` with every `{{name}}` replaced; values are not scanned again, and `{{` that is never closed is plain text.

    Raises: PromptError for an unknown or malformed name and for a variable without a value.
    """
    parts = _parse(text)
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return "".join(part if isinstance(part, str) else _value(part.name, context) for part in parts)


def _text(section: Section, context: AssemblyContext) -> str:
    """The section's text without blank lines around it."""
    try:
        text = render(section.text, context) if isinstance(section.text, str) else section.text(context)
    except PromptError as error:
        raise PromptError(f"prompt section {section.name!r}: {error}") from error
    except Exception as error:
        raise PromptError(f"prompt section {section.name!r} failed: {type(error).__name__}: {error}") from error
    return text.strip("\n") if text.strip() else ""


def _value(name: str, context: AssemblyContext) -> str:
    try:
        value = context.value(name)
    except KeyError:
        known = ", ".join(context.names)
        raise PromptError(f"there is no variable {{{{{name}}}}}; there are {known}") from None
    if value is None:
        raise PromptError(f"the variable {{{{{name}}}}} has no value here")
    return value


@lru_cache(maxsize=1024)
def _parse(text: str) -> _Parts:
    """Raises: PromptError for a malformed reference (not cached, since it fails the turn anyway)."""
    parts: list[str | _Variable] = []
    at = 0
    while (start := text.find("{{", at)) >= 0 and (end := text.find("}}", start + 2)) >= 0:
        name = text[start + 2 : end]
        if not _VARIABLE.match(name):
            raise PromptError(
                f"{text[start : end + 2]!r} is no variable: its name must be a-z, then any of a-z, 0-9 and underscore"
            )
        if start > at:
            parts.append(text[at:start])
        parts.append(_Variable(name))
        at = end + 2
    if at < len(text) or not parts:
        parts.append(text[at:])
    return tuple(parts)
