"""A folder like a newcomer's, and a server that answers as the model of the documentation."""

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of a newcomer: nothing of the tests' own surroundings but where programs are."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
    user = tmp_path / "user"
    user.mkdir()
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(user),
        "PYTHONWARNINGS": "error",
    }
