"""The pytest plugin, as somebody with scenarios of their own uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.testing.scenario.sets import change, copied


def test_folders_are_collected_and_a_failure_shows_the_words_and_no_traceback(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-multi", "subagent-spawn")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["retinue.testing.scenario.plugin"]\n')
    change(path / "stdout.expected", "12 ropes", "14 ropes")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "subagent-multi: stdout.expected: … ropes and sails are there?↵[-14-]{+12+} ropes" in done.stdout
    assert "Traceback" not in done.stdout
    assert "subagent-multi/scenario.yaml::subagent-multi" in done.stdout
