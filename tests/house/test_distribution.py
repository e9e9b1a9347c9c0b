"""The wheel carries all that the package needs, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.house.checkout import PACKAGE, ROOT, project, repository_files


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as wheel:
        names = set(wheel.namelist())
        meta = f"retinue-{project()['project']['version']}.dist-info"
        entry_points = wheel.read(f"{meta}/entry_points.txt").decode()

    package = {f.relative_to(PACKAGE.parent).as_posix() for f in repository_files() if f.is_relative_to(PACKAGE)}
    assert {name for name in names if not name.startswith(meta)} == package
    assert f"{meta}/licenses/LICENSE" in names
    assert "retinue = retinue.cli.main:entry" in entry_points
