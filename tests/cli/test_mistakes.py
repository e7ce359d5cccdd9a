"""Every mistake of a newcomer is told in the words of mistakes.txt, and ends as it says."""

import pytest
from mistakes import MISTAKES, SAID, Mistake, row

ROWS = SAID.read_text(encoding="utf-8").splitlines()


def test_each_mistake_is_there_once() -> None:
    assert [line.split(" | ")[0].removeprefix("| ") for line in ROWS] == [each.name for each in MISTAKES]


@pytest.mark.parametrize(
    ("mistake", "line"), list(zip(MISTAKES, ROWS, strict=False)), ids=[each.name for each in MISTAKES]
)
def test_a_mistake_is_told_as_before(mistake: Mistake, line: str) -> None:
    assert row(mistake) == line
    assert line.endswith(f"| {mistake.ends} |")
