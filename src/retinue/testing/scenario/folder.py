"""A scenario's folder: which files it may hold, and the set that it belongs to. Nothing is run here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from retinue.errors import ConfigError
from retinue.testing.scenario.form import ScenarioForm, ScriptForm, read_scenario, read_scripts

__all__ = [
    "HEADER",
    "SCENARIO",
    "SCRIPTS",
    "STDOUT",
    "Folder",
    "find_folders",
    "log_name",
    "log_number",
    "pin_number",
    "prompt_name",
    "tools_name",
]

SCENARIO = "scenario.yaml"
SCRIPTS = "scripts.yaml"
FILES = "files"
STDOUT = "stdout.expected"
HEADER = "request-header.expected.json"

_LOG = re.compile(r"session(?:\.(\d+))?\.jsonl\Z")
_PROMPT = re.compile(r"system-prompt(?:\.(\d+))?\.expected\.md\Z")
_TOOLS = re.compile(r"tool-schemas(?:\.(\d+))?\.expected\.json\Z")


def log_name(number: int) -> str:
    """The file of a log; 0 is the root's."""
    return f"session.{number}.jsonl" if number else "session.jsonl"


def prompt_name(number: int) -> str:
    """The file that pins the system prompt of a log; 0 is the class's."""
    return f"system-prompt.{number}.expected.md" if number else "system-prompt.expected.md"


def tools_name(number: int) -> str:
    """The file that pins the tools of a log; 0 is the class's."""
    return f"tool-schemas.{number}.expected.json" if number else "tool-schemas.expected.json"


def log_number(name: str) -> int | None:
    """The number of the log in a file of that name; None if it holds none."""
    found = _LOG.match(name)
    return None if found is None else int(found.group(1) or 0)


def pin_number(name: str) -> int | None:
    """The number of the session whose header a file of that name pins, 0 for the class; None if it pins nothing."""
    found = _PROMPT.match(name) or _TOOLS.match(name)
    return None if found is None else int(found.group(1) or 0)


@dataclass(frozen=True, slots=True)
class Folder:
    """One scenario as it lies on disk."""

    path: Path
    form: ScenarioForm

    @classmethod
    def read(cls, path: Path) -> Folder:
        """The scenario in that folder. Raises: ConfigError."""
        if not (path / SCENARIO).is_file():
            raise ConfigError(f"{path} is no scenario: it has no {SCENARIO}")
        return cls(path, read_scenario(path / SCENARIO))

    @property
    def name(self) -> str:
        """What people call it."""
        return self.path.resolve().name

    def scripts(self) -> tuple[ScriptForm, ...]:
        """Who answers what. Raises: ConfigError if neither file says it, or both do."""
        file = self.path / SCRIPTS
        if (self.form.scripts is None) != file.is_file():
            where = "twice" if file.is_file() else "nowhere"
            raise ConfigError(f"{self.path}: scripts stand {where}; write them in {SCENARIO} or in {SCRIPTS}")
        return self.form.scripts if self.form.scripts is not None else read_scripts(file)

    def files(self) -> Path | None:
        """What the working folder begins with."""
        folder = self.path / FILES
        return folder if folder.is_dir() else None

    def text(self, name: str) -> str | None:
        """The content of one of its files."""
        file = self.path / name
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def siblings(self) -> list[Folder]:
        """Every scenario of the set, this one included: those that lie in the same folder. Raises: ConfigError."""
        return [Folder.read(file.parent) for file in sorted(self.path.resolve().parent.glob(f"*/{SCENARIO}"))]

    # Which files there may be.

    def misplaced(self) -> Iterator[str]:
        """What is wrong with the files, before anything is run."""
        names = sorted(entry.name for entry in self.path.iterdir())
        known = {SCENARIO, SCRIPTS, FILES, STDOUT, HEADER, self.form.config_file}
        for name in names:
            if name not in known and log_number(name) is None and pin_number(name) is None:
                yield f"{name} is an orphan: nothing here reads it"
        logs = [number for name in names if (number := log_number(name)) is not None]
        for number in sorted(set(range(max(logs, default=0))) - set(logs)):
            yield f"{log_name(number)} is missing, and {log_name(max(logs))} is there: the numbers have a gap"
        yield from self._misplaced_pins(
            names, _PROMPT, "pins_child_system_prompts", self.form.pins_child_system_prompts
        )
        yield from self._misplaced_pins(names, _TOOLS, "pins_child_tool_schemas", self.form.pins_child_tool_schemas)

    def _misplaced_pins(
        self, names: list[str], pattern: re.Pattern[str], key: str, declared: tuple[int, ...]
    ) -> Iterator[str]:
        """Sidecars that nothing declares. Those that are declared and missing are found when they are read."""
        for name in names:
            found = pattern.match(name)
            if found is None:
                continue
            if found.group(1) is None:
                if not self.form.header.pins:
                    yield f"{name} is an orphan: this scenario does not pin the class {self.form.header.name!r}"
            elif int(found.group(1)) not in declared:
                yield f"{name} is there and {key} does not name {found.group(1)}: declare it, or remove the file"
        for number in declared:
            if number < 1:
                yield f"{key} names {number}: children have the numbers from 1"


def find_folders(place: Path) -> list[Path]:
    """The folders of all scenarios at or below `place`. Those that pin a class come first: others need their files.

    Raises: ConfigError if there is none, or one does not hold.
    """
    found = [Folder.read(file.parent) for file in sorted(place.rglob(SCENARIO))]
    if not found:
        raise ConfigError(f"there is no {SCENARIO} in {str(place)!r} or below it")
    return [folder.path for folder in sorted(found, key=lambda folder: not folder.form.header.pins)]
