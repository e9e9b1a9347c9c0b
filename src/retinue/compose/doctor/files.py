"""What is wrong beside the database of a home: room, rights, and what dead processes left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from retinue.compose.doctor.finding import Finding
from retinue.plugins.shell.running_groups import RunningGroups
from retinue.store.sqlite import owner_leftovers

__all__ = ["EMPTY_BYTES", "LOW_BYTES", "folder_findings", "leftover_findings", "take_away"]

LOW_BYTES, EMPTY_BYTES = 256 * 2**20, 16 * 2**20
"""Free room that is worth a warning, and that is next to nothing."""


def folder_findings(home: Path, database: Path, *, low: int = LOW_BYTES, empty: int = EMPTY_BYTES) -> Iterator[Finding]:
    """What keeps agents from writing. A home that does not exist yet is judged by the folder it would be made in."""
    for folder in dict.fromkeys((home, database.parent)):
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK) or _is_read_only(there):
            yield Finding(
                severity="error",
                code="HOME_UNWRITABLE",
                text=f"nothing can be written in {there}, so no agent can run with this home",
                advice="check its owner and mode and how it is mounted, or choose another one with --home",
            )
            continue
        free = shutil.disk_usage(there).free
        if free < low:
            yield Finding(
                severity="error" if free < empty else "warning",
                code="DISK_LOW",
                text=f"only {free // 2**20} MiB are free where {there} is; an agent whose log cannot grow stops",
                advice="free space, or remove old trees: retinue prune --older-than DAYS",
            )


def _is_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def leftover_findings(
    home: Path, database: Path, outputs: list[tuple[Path, str]], known: set[str] | None
) -> Iterator[Finding]:
    """What dead processes and removed sessions left.

    `outputs` are folders of long outputs, listed before `known`: all sessions there are, None if that is not certain.
    """
    for path in owner_leftovers(str(database)):
        yield _left(Path(path), "OWNER_FILE_LEFT", f"{path} is of a process that died")
    for path, id in outputs:
        if known is not None and id not in known:
            yield _left(path, "OUTPUT_LEFT", f"{path} holds long outputs of session {id!r}, which is not stored here")
    for found in RunningGroups(home / "running").leftovers():
        if found.is_running:
            yield Finding(
                severity="warning",
                code="COMMAND_LEFT",
                text=f"command {found.pid} still runs, and the agent that began it died",
                advice=f"the next run there ends it; or now: kill -- -{found.pid}",
            )
        else:
            yield _left(found.path, "COMMAND_FILE_LEFT", f"{found.path} is of a command that has ended")


def _left(path: Path, code: str, text: str) -> Finding:
    return Finding(severity="note", code=code, text=text, advice="retinue doctor --fix takes it away", leftover=path)


def take_away(finding: Finding) -> bool:
    """What the finding calls a leftover is gone; False if there is none, or it cannot be removed."""
    path = finding.leftover
    if path is None:
        return False
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
