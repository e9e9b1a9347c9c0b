"""What a session is called."""

from retinue.model.content import Image, Text
from retinue.session.title import brief_title, opening


def test_what_comes_with_a_task_is_no_part_of_its_name() -> None:
    image = Image("image/png", "AAAA")
    assert opening((image, Text(" \n"), Text("Count\nit."), Text('<resource uri="a"></resource>'))) == "Count\nit."
    assert opening((image,)) == ""


def test_a_brief_title_is_a_line() -> None:
    assert brief_title("Count\n  it.") == "Count it."
    assert brief_title("x" * 100) == "x" * 79 + "…"
