"""Folders for state, private from their first moment."""

from __future__ import annotations

import os
from errno import ENOTDIR


def make_folder(path: str) -> None:
    """The folder exists; what had to be created is for its owner alone."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent:
        make_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), path) from None
