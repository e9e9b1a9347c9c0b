"""What the file tools have in common: text and its line ends, numbered lines, system errors in words."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from retinue.errors import ToolFailure
from retinue.tools.tool import Caller, ToolContext

MAX_FILE_BYTES = 64 * 1024 * 1024
"""A larger file is not loaded; searching and cutting it is work for other tools."""

BOM = "\ufeff"


def caller_of(ctx: ToolContext) -> Caller:
    """The agent that asked. Raises: ToolFailure `NO_CALLER`: there is no folder and no permission without one."""
    if ctx.caller is None:
        raise ToolFailure("NO_CALLER", f"{ctx.name} needs a calling agent")
    return ctx.caller


def is_binary(data: bytes) -> bool:
    """True if the beginning holds a NUL byte, which text does not."""
    return b"\0" in data[:8192]


def decode_text(data: bytes) -> str:
    """The text, with bytes that are no UTF-8 as lone surrogates, so that `encode_text` gives the same bytes back."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """The bytes of a text from `decode_text`, perhaps changed."""
    return text.encode("utf-8", "surrogateescape")


def uses_crlf(text: str) -> bool:
    """True if most lines end in CR LF."""
    return text.count("\r\n") * 2 > text.count("\n")


def with_newlines(text: str, *, crlf: bool) -> str:
    """`text` with CR LF line ends if `crlf`, else as it is."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if crlf else text


def numbered(lines: Sequence[str], first: int) -> str:
    """The lines with their numbers, the first of them being number `first`."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def plural(count: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@contextmanager
def told(path: Path) -> Generator[None]:
    """What the system refuses about `path` becomes a ToolFailure with a hint."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolFailure("NOT_FOUND", f"{path} does not exist{_near(path)}") from error
    except IsADirectoryError as error:
        raise ToolFailure("IS_A_FOLDER", f"{path} is a folder{_listing(path)}; find files with `glob`") from error
    except NotADirectoryError as error:
        raise ToolFailure("NOT_A_FOLDER", f"a part of {path} is a file, not a folder") from error
    except PermissionError as error:
        raise ToolFailure("ACCESS_DENIED", f"the system does not let this user access {path}") from error
    except OSError as error:
        raise ToolFailure("IO_FAILED", f"{path}: {error.strerror or error}") from error


def _near(path: Path) -> str:
    """Names like the missing one, or which part of the path is missing."""
    parent = path.parent
    try:
        names = os.listdir(parent)
    except OSError:
        return f"; its folder {parent} cannot be listed either"
    import difflib

    close = difflib.get_close_matches(path.name, names[:5000], n=3)
    return f"; its folder has {', '.join(close)}" if close else ""


def _listing(path: Path) -> str:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return ""
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    return f" with {', '.join(names[:30])}{more}" if names else " without entries"
