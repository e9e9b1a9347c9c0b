"""Keys from a `.env` file in the working folder. Only names that hold keys or Retinue's own settings are taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["with_dotenv"]

_LINE = re.compile(r"\s*(?:export\s+)?([A-Z][A-Z0-9_]*)\s*=\s*(.*?)\s*$")
_TAKEN = re.compile(r".*_(API_KEY|BASE_URL)$|RETINUE_(MODEL|BASE_URL)$")


def with_dotenv(environ: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """`environ`, and below it what `.env` in `folder` says of keys and model. A file that cannot be read is no file.

    A folder may belong to somebody else, so the file decides nothing about permissions or where state lives.
    """
    try:
        text = (folder / ".env").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return environ
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None and _TAKEN.match(match.group(1)):
            found[match.group(1)] = _unquoted(match.group(2))
    return {**found, **environ}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in ("'", '"'):
        return value[1:-1]
    return value.split(" #", 1)[0].rstrip()
