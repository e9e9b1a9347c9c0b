"""The command line inside the test's process, and a home in which something has happened."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import apsw
import pytest

from retinue.cli.demo.copying import copy_bundled
from retinue.cli.demo.opening import open_demo
from retinue.cli.demo.roles import TASK
from retinue.cli.group import run_command
from retinue.compose.run import Result
from retinue.store.sqlite._schema import APPLICATION_ID
from tests.support.command import Done


@pytest.fixture
def retinue(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Done]:
    """`retinue ARGUMENTS` with a user of its own and nothing of the real one's."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("RETINUE_MODEL", "RETINUE_BASE_URL", "RETINUE_STORE", "RETINUE_PERMISSION", "RETINUE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        code = run_command(arguments)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


class Lived:
    """A home with one finished tree in it."""

    def __init__(self, home: Path, result: Result) -> None:
        self.home = home
        self.result = result
        self.root = result.session_id


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    place = tmp_path_factory.mktemp("lived")
    copy_bundled(place / "tree")

    async def live() -> Result:
        async with open_demo(place / "home", place / "tree") as app:
            return await (await app.run(TASK)).result()

    return Lived(place / "home", anyio.run(live))


def cut_off_database(place: Path, path: Path) -> None:
    """A database at `path` with a journal of the size that a first transaction leaves, copied while it is open."""
    source = place / "source.db"
    connection = cast(Any, apsw.Connection(str(source)))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; CREATE TABLE t (x)")
    connection.execute("PRAGMA cache_spill = 1; PRAGMA cache_size = 1; BEGIN; CREATE TABLE u (x)")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " INSERT INTO t SELECT hex(randomblob(100)) FROM n"
    )
    shutil.copy(source, path)
    shutil.copy(f"{source}-journal", f"{path}-journal")
    connection.close()
