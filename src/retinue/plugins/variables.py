"""Environment variables in configured text: `${NAME}` and `${NAME:-default}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from retinue.errors import ConfigError

__all__ = ["filled"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def filled(what: str, text: str, environ: Mapping[str, str]) -> str:
    """`text` with its variables filled in. Raises: ConfigError that says `what` needs one that is not set."""

    def value(match: re.Match[str]) -> str:
        found = environ.get(match[1]) or match[2]
        if found is None:
            raise ConfigError(f"{what}: the environment variable {match[1]} is not set")
        return found

    return _VARIABLE.sub(value, text)
