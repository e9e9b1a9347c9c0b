"""The reference pages say what the code says."""

from scripts.reference import PAGES, differences
from tests.house.checkout import ROOT


def test_the_pages_are_what_the_code_gives() -> None:
    found = differences()
    assert not found, f"docs/reference is behind the code; run `make docs`:\n{found}"


def test_every_page_is_generated() -> None:
    assert {path.stem for path in (ROOT / "docs" / "reference").glob("*.md")} == set(PAGES)
