"""Loops that tell how far they are."""

import pytest

from palimpsest import progress
from palimpsest.progress import LINE, counter


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a loop of uneven steps, told at every step."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    show = counter(name="predict wave 0", total=30, unit="token")
    for done in (4, 20, 30):
        show(done)
    return capsys.readouterr().err.splitlines()


def test_a_counter_tells_what_is_done_in_the_one_shape_of_a_line(told: list[str]) -> None:
    found = [LINE.match(line) for line in told]
    assert [(match["name"], match["done"], match["total"]) for match in found if match] == [
        ("predict wave 0", "4", "30"),
        ("predict wave 0", "20", "30"),
        ("predict wave 0", "30", "30"),
    ]


def test_a_counter_is_silent_between_lines_but_tells_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    show = counter(name="loop", total=3)
    for done in (1, 2, 3):
        show(done)
    assert len(capsys.readouterr().err.splitlines()) == 1
