"""The page of coverage: rows, counts, commands, and links to pages that have the numbers."""

import re
from collections import Counter

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from bench.pages import ROOT
from palimpsest.cli.main import app

STATUSES = ("ran", "ready", "differs", "missing")
PAGE = ROOT / "docs" / "coverage.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d{3}-", line)
]
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]+)[^)]*\)")


def status(row: list[str]) -> str:
    """The first word of the last cell."""
    found = re.match(r"`(\w+)`", row[-1])
    assert found, row
    return found[1]


def test_ids_are_complete() -> None:
    last = Counter(row[0][:3] for row in ROWS)
    assert set(last) == {"000", "002", "003", "004"}
    assert [row[0] for row in ROWS] == [f"{paper}-{n:02}" for paper in last for n in range(1, last[paper] + 1)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_says_its_state_and_what_that_rests_on(row: list[str]) -> None:
    assert len(row) == 5
    assert status(row) in STATUSES
    assert (row[-1] == "`ran`") == (status(row) == "ran"), "each other state has a reason"
    if status(row) == "ran":
        assert _LINK.search(row[3]), "what ran has a number on a page"


def test_the_summary_counts_the_rows() -> None:
    counts = Counter((row[0][:3], status(row)) for row in ROWS)
    papers = sorted({paper for paper, _ in counts})
    lines = {paper: [counts[paper, each] for each in STATUSES] for paper in papers}
    lines["all"] = [sum(column) for column in zip(*lines.values(), strict=True)]
    wanted = [f"| {name} | {sum(line)} | {' | '.join(map(str, line))} |" for name, line in lines.items()]
    header = f"| paper | rows | {' | '.join(f'`{each}`' for each in STATUSES)} |\n|---|---|---|---|---|---|\n"
    assert header + "\n".join(wanted) in PAGE.read_text(encoding="utf-8")


def test_links_lead_to_pages_that_have_the_number() -> None:
    """Each number of a link's text stands in the page by itself, not as a part of another one."""
    for row in ROWS:
        for text, target in _LINK.findall(" ".join(row)):
            page = (PAGE.parent / target).read_text(encoding="utf-8")
            for number in re.findall(r"[+-]?[\d.,]*\d", text):
                assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", page), (row[0], number, target)


def test_commands_exist() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    commands = group.list_commands(Context(group))
    for row in ROWS:
        words = row[2].strip("`").split()
        if words[0] == "palimpsest":
            assert words[1] in commands, row
        elif words != ["—"]:
            assert words[:2] == ["python", "-m"], row
            module = ROOT.joinpath(*words[2].split("."))
            assert module.with_suffix(".py").is_file(), row
