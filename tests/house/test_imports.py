"""Importing is cheap and does nothing: what is not needed yet is not loaded yet."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.checkout import PACKAGE, module_name, project, source_files

# Loaded where a request is made, a page is served or a file is read; never to print a version.
HEAVY = {"aiohttp", "anyio", "apsw", "asyncio", "jsonschema_rs", "rich", "yaml"}

_REPORT = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr));"
_COMMAND = "sys.argv = ['retinue', *sys.argv[1:]]; from retinue.cli.main import entry; sys.exit(entry())"


def _run(code: str, *arguments: str) -> tuple[str, set[str]]:
    """Run code in a fresh interpreter; return its standard output and the modules it had loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", _REPORT + code, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    *complaints, loaded = done.stderr.splitlines()
    assert (done.returncode, complaints) == (0, [])
    return done.stdout, set(json.loads(loaded))


def test_importing_the_package_loads_nothing_heavy() -> None:
    _, loaded = _run("import retinue")
    assert "retinue" in loaded
    assert loaded & HEAVY == set()


def test_version_prints_the_version_and_loads_nothing_heavy() -> None:
    printed, loaded = _run(_COMMAND, "--version")
    assert project()["project"]["version"] in printed
    assert loaded & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    printed, loaded = _run(_COMMAND, "--help")
    assert "Usage: retinue" in printed
    assert loaded & HEAVY == set()


def test_the_installed_command_prints_the_version() -> None:
    command = Path(sys.executable).with_name("retinue")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30, check=True)
    assert project()["project"]["version"] in done.stdout
    assert done.stderr == ""


def test_the_package_knows_its_version() -> None:
    printed, _ = _run("import retinue; print(retinue.__version__)")
    assert printed.strip() == project()["project"]["version"]


def test_every_name_of_the_public_api_can_be_imported() -> None:
    package = importlib.import_module("retinue")
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


@pytest.mark.parametrize("name", [module_name(path) for path in source_files() if path.name != "__main__.py"])
def test_the_module_imports_and_has_what_it_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert [export for export in getattr(module, "__all__", ()) if not hasattr(module, export)] == []


def test_importing_a_module_starts_nothing() -> None:
    """Import all of them in one fresh interpreter: no thread, no child process, no file written, no output."""
    names = [module_name(path) for path in source_files() if path.name != "__main__.py"]
    code = (
        "import importlib, threading; effects = [];\n"
        "watched = {'os.fork', 'os.forkpty', 'os.mkdir', 'os.putenv', 'os.remove', 'os.rename', 'socket.bind',\n"
        "           'socket.connect', 'sqlite3.connect', 'subprocess.Popen'}\n"
        "def hook(event, args):\n"
        "    writes = event == 'open' and isinstance(args[1], str) and set(args[1]) & set('wax+')\n"
        "    if event in watched or (writes and '__pycache__' not in str(args[0])):\n"
        "        effects.append(f'{event} {args!r}')\n"
        "sys.dont_write_bytecode = True; sys.addaudithook(hook)\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print([t.name for t in threading.enumerate()], effects)"
    )
    printed, loaded = _run(code, *names)
    assert printed.strip() == "['MainThread'] []"
    assert set(names) <= loaded
    assert (PACKAGE / "py.typed").exists()
