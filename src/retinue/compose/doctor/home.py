"""A whole home looked over: the folder, the database, and what lies beside it."""

from __future__ import annotations

from pathlib import Path

from retinue.compose.doctor.database import Looked, database_findings
from retinue.compose.doctor.files import folder_findings, leftover_findings
from retinue.compose.doctor.finding import Finding
from retinue.tools.output import spilled_sessions

__all__ = ["Report", "examined"]

_RANK = {"error": 0, "warning": 1, "note": 2}


class Report:
    """What was found, worst first, and how much was looked at."""

    def __init__(self, findings: list[Finding], looked: Looked) -> None:
        self.findings = sorted(findings, key=lambda finding: _RANK[finding.severity])
        self.trees = looked.trees
        self.sessions = len(looked.sessions)

    def count(self, severity: str) -> int:
        """How many findings have that severity."""
        return sum(finding.severity == severity for finding in self.findings)


def examined(home: Path, database: Path) -> Report:
    """What is wrong with a home. Changes nothing, takes no lease, and works beside living processes. Blocks."""
    looked = Looked()
    outputs = spilled_sessions(home / "spill")  # before the sessions: one is stored before it has any output
    findings = [*folder_findings(home, database), *database_findings(database, looked)]
    known = {str(id) for id in looked.sessions} if looked.is_whole else None
    findings.extend(leftover_findings(home, database, outputs, known))
    return Report(findings, looked)
