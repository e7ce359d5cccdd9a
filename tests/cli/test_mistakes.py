"""Every mistake of a newcomer is told in the words of docs/results/mistakes.md, and ends as it says."""

import pytest
from mistakes import HEAD, MISTAKES, PAGE, Mistake, row

ROWS = PAGE.read_text(encoding="utf-8").removeprefix(HEAD).splitlines()


def test_the_page_has_each_mistake_once() -> None:
    assert [line.split(" | ")[0].removeprefix("| ") for line in ROWS] == [each.name for each in MISTAKES]


@pytest.mark.parametrize(
    ("mistake", "line"), list(zip(MISTAKES, ROWS, strict=False)), ids=[each.name for each in MISTAKES]
)
def test_a_mistake_is_told_as_the_page_says(mistake: Mistake, line: str) -> None:
    assert row(mistake) == line
    assert line.endswith(f"| {mistake.ends} |")
