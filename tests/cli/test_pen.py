"""Writing that never holds the loop up."""

import os

from retinue.cli.headless.pen import Pen


def test_what_is_written_arrives_whole_and_in_order() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    expected = b"".join(b"%06d\n" % i for i in range(30_000))
    with os.fdopen(write, "w") as stream, os.fdopen(read, "rb") as source:
        pen = Pen(stream)
        for number in range(30_000):
            pen.line(f"{number:06}")
        assert not pen.flush(0.05), "the pipe is full and nobody has read"
        assert source.read(len(expected)) == expected
        assert pen.flush(5)
        assert pen.failure is None


def test_a_reader_that_left_is_told_once() -> None:
    read, write = os.pipe()
    os.close(read)
    told: list[bool] = []
    with os.fdopen(write, "w") as stream:
        pen = Pen(stream, lambda: told.append(True))
        pen.line("one")
        pen.line("two")
        assert pen.flush(5)
    assert told == [True]
    assert isinstance(pen.failure, BrokenPipeError)
