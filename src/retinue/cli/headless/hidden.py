"""What other programs of the same user can see of this process: not its environment, if that holds keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["hide_keys"]

_PR_SET_DUMPABLE = 4


def hide_keys(environ: Mapping[str, str]) -> None:
    """Commands that agents run cannot read this process's environment and memory, unless they run as root.

    Linux only. There are no core dumps after it. A system that refuses is left as it is.
    """
    if sys.platform != "linux" or not any(name.endswith("_API_KEY") for name in environ):
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return
