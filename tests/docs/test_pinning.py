"""The guide to pinning, followed from its first block to its last in the folder of somebody's project."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.docs.pages import Block, blocks, commands, fits
from tests.house.checkout import ROOT

_BLOCKS = blocks(ROOT / "docs" / "guides" / "pinning.md")
_NOT_RUN = "sh"
"""The recording, which needs a model; tests/cli/test_scenario.py records from a server of its own."""


def _write(block: Block, folder: Path) -> None:
    """The file that the first line of the block names, or more of it."""
    title, _, text = block.text.partition("\n")
    name, _, more = title.removeprefix("# ").partition(", ")
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    assert more in ("", "added at the end")
    file.write_text((file.read_text() if more else "") + text)


def test_every_block_does_what_the_page_shows(tmp_path: Path, variables: dict[str, str]) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for block in _BLOCKS:
        if block.kind in ("yaml", "text", "python"):
            _write(block, folder)
        elif block.kind == "console":
            for command in commands(block):
                done = subprocess.run(
                    ["sh", "-c", command.words], cwd=folder, env=variables, capture_output=True, text=True, check=False
                )
                came = done.stdout + done.stderr
                assert fits(command.shown, came), f"{block}: $ {command.words}\n{command.shown}\n\ncame:\n{came}"


def test_no_block_goes_unchecked() -> None:
    assert {block.kind for block in _BLOCKS} == {"yaml", "text", "python", "console", _NOT_RUN}
    (recording,) = [block for block in _BLOCKS if block.kind == _NOT_RUN]
    assert recording.text.startswith("retinue scenario record --model ")
