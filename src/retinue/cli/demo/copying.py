"""The tree that the demo works on: a private copy, made from the bundled files or from a folder of the user's."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from retinue.cli.demo.roles import LIMIT
from retinue.errors import BadInput

__all__ = ["copy_bundled", "copy_folder"]

_MAX_BYTES = 20_000_000
_SKIPPED = frozenset({".git", ".hg", ".venv", "node_modules", "__pycache__"})


def copy_bundled(target: Path) -> None:
    """The bundled tree is in `target`, a new folder."""
    _copy_resource(files("retinue.cli.demo").joinpath("tree"), target)


def _copy_resource(source: Traversable, target: Path) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.is_dir():
            _copy_resource(entry, target / entry.name)
        else:
            # Bundled files end in one more `.txt`, so that nothing takes them for parts of this program.
            (target / entry.name.removesuffix(".txt")).write_bytes(entry.read_bytes())


def copy_folder(source: Path, target: Path) -> None:
    """The regular files of `source` are in `target`, a new folder; links, version control and caches are left out.

    Raises: BadInput if `source` is no folder or too large for a demonstration.
    """
    if not source.is_dir():
        raise BadInput(f"--from {str(source)!r} is not a folder")
    target.mkdir()
    count = size = 0
    for folder, names, file_names in os.walk(source):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not Path(folder, name).is_symlink())
        place = target / Path(folder).relative_to(source)
        for name in names:
            (place / name).mkdir()
        for path in (Path(folder, name) for name in sorted(file_names)):
            if path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            count, size = count + 1, size + len(data)
            if count > LIMIT or size > _MAX_BYTES:
                raise BadInput(f"--from {str(source)!r} is too large for a demonstration; choose a smaller folder")
            (place / path.name).write_bytes(data)
