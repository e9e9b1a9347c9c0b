"""Fenced blocks of Markdown pages, and comparing what a page shows with what really came."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.house.checkout import ROOT

__all__ = ["Block", "Command", "blocks", "commands", "fits"]

ANYTHING = "…"


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    """Of the opening fence, from 1."""
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a console block and what the page shows after it."""

    words: str
    shown: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page. Fails on a fence without a kind, which no test would look at."""
    name = page.relative_to(ROOT).as_posix()
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None and line.startswith("```"):
            assert line != "```", f"{name}:{number}: say what kind of block this is"
            opened, lines = (number, line[3:].strip()), []
        elif opened is not None and line == "```":
            found.append(Block(name, opened[0], opened[1], "\n".join(lines) + "\n"))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{name}: the last block has no end"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    first, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not first, f"{block} must begin with a command"
    return [Command(*(piece.strip("\n") for piece in part.partition("\n")[::2])) for part in parts]


def fits(shown: str, came: str) -> bool:
    """`came` is what the page shows: `…` stands for anything, on a line of its own also for any number of lines."""
    pattern = re.escape(shown.strip()).replace(re.escape("\n"), "\n")
    pattern = re.sub(rf"^{ANYTHING}(\n|\Z)", r"(?:.*\n)*?", pattern, flags=re.MULTILINE).replace(ANYTHING, ".*")
    return re.fullmatch(pattern, came.strip() + "\n" if pattern.endswith("*?") else came.strip()) is not None
