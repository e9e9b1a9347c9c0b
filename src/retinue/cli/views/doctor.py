"""Findings about a home, for people and for scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from retinue.base.json import JSONObject
from retinue.cli.text import one_line
from retinue.compose.doctor.finding import Finding
from retinue.compose.doctor.home import Report

__all__ = ["advised", "finding_lines", "finding_object", "summary_line"]


def advised(finding: Finding, place: str) -> Finding:
    """The same finding; commands in its advice have the options that find the same home."""
    advice = re.sub(r"\bretinue ([a-z]+)", lambda command: command[0] + place, finding.advice)
    return replace(finding, advice=advice)


def finding_lines(finding: Finding, *, is_fixed: bool) -> Iterator[str]:
    """What is so, and what to do."""
    who = "" if finding.session_id is None else f"{finding.session_id}: "
    yield f"{finding.severity:<8}{finding.code}  {one_line(who + finding.text)}"
    yield f"        -> {'taken away' if is_fixed else one_line(finding.advice)}"


def finding_object(finding: Finding, *, is_fixed: bool) -> JSONObject:
    """The finding as one JSON object."""
    return {
        "severity": finding.severity,
        "code": finding.code,
        "session_id": finding.session_id,
        "text": finding.text,
        "advice": finding.advice,
        "fixed": is_fixed,
    }


def summary_line(report: Report) -> str:
    """How much was looked at and how much was found."""
    looked = f"{_count(report.sessions, 'session')} in {_count(report.trees, 'tree')}"
    if not report.findings:
        return f"{looked}: all in order"
    found = (_count(report.count(severity), severity) for severity in ("error", "warning", "note"))
    return f"{looked}: {', '.join(found)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
