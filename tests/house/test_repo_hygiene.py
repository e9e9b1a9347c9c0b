"""What may stand in the repository, and that its pinned requirements match what the project asks for."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.checkout import ROOT, project, repository_files

LARGEST_BYTES = 512_000

# In pieces, so that this file passes its own test.
MACHINE_PATHS = tuple("/" + name + "/" for name in ("work", "root"))
PACKAGE_HOSTS = ("python" + "hosted", "pypi" + ".org/simple", "registry.npm" + "js.org")


def _readable(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def _machine_paths(text: str) -> list[str]:
    """Return the absolute paths into a developer's machine; `src/work/` or a URL's path is none."""
    return [found for name in MACHINE_PATHS for found in re.findall(rf"(?<![\w.*/}}-]){name}", text)]


def test_no_file_names_a_path_of_one_machine() -> None:
    assert {str(p.relative_to(ROOT)): f for p in repository_files() if (f := _machine_paths(_readable(p)))} == {}


def test_no_file_names_a_package_host() -> None:
    found = {
        str(path.relative_to(ROOT)): host
        for path in repository_files()
        for host in PACKAGE_HOSTS
        if host in _readable(path).lower()
    }
    assert found == {}


def test_the_search_for_machine_paths_tells_them_from_others() -> None:
    assert _machine_paths(f"cd {MACHINE_PATHS[0]}main") == [MACHINE_PATHS[0]]
    assert _machine_paths(f"'{MACHINE_PATHS[1]}.cache'") == [MACHINE_PATHS[1]]
    assert _machine_paths("docs" + MACHINE_PATHS[0] + "x") == []


def test_no_file_is_large() -> None:
    large = {str(path.relative_to(ROOT)): path.stat().st_size for path in repository_files()}
    assert {name: size for name, size in large.items() if size > LARGEST_BYTES} == {}


def _pins(name: str) -> dict[str, str]:
    """Return the exact version of each package in a requirements file, after checking that each has a hash."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    pins: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        assert "--hash=sha256:" in line, f"{name}: {line[:60]} has no hash"
        package, version = re.split(r"[\s;]", line)[0].split("==")
        pins[canonicalize_name(package)] = version
    return pins


def _asked_for(*groups: str) -> list[Requirement]:
    asked = list(project()["project"]["dependencies"])
    for group in groups:
        asked += [item for item in project()["dependency-groups"][group] if isinstance(item, str)]
    return [Requirement(item) for item in asked]


@pytest.mark.parametrize(("name", "groups"), [("run.txt", ["build"]), ("dev.txt", ["build", "dev"])])
def test_the_pinned_requirements_are_what_the_project_asks_for(name: str, groups: list[str]) -> None:
    pins = _pins(name)
    for asked in _asked_for(*groups):
        version = pins.get(canonicalize_name(asked.name))
        assert version is not None, f"{asked.name} is not in requirements/{name}; run make lock"
        assert asked.specifier.contains(version), f"requirements/{name} has {asked.name} {version}; run make lock"


def test_what_runs_is_the_same_in_development() -> None:
    run, dev = _pins("run.txt"), _pins("dev.txt")
    assert run.items() <= dev.items()
