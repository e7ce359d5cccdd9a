"""The page of coverage: items, counts, commands, and pages that have the numbers."""

import re

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from bench.pages import ROOT
from palimpsest.cli.main import app

PAGE = ROOT / "docs" / "coverage.md"
TEXT = PAGE.read_text(encoding="utf-8")
STATES = {"ran by": "ran", "ready, but lacks": "ready", "differs": "differs"}
# Which column of a state's table holds the items.
COLUMN = {"ran": 1, "ready": 1, "differs": 0}
_TABLE = re.compile(r"^\| ([^|\n]+?) \|[^\n]*\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", re.MULTILINE)


def tables(section: str) -> dict[str, list[list[str]]]:
    """State -> the rows of its table."""
    return {
        STATES[head]: [[cell.strip() for cell in line.strip("|").split(" |")] for line in body.splitlines()]
        for head, body in _TABLE.findall(section)
        if head in STATES
    }


PAPERS = {part[:3]: tables(part) for part in TEXT.split("\n## Paper ")[1:]}
RAN = [row for known in PAPERS.values() for row in known["ran"]]


def test_every_paper_has_its_tables() -> None:
    assert set(PAPERS) == {"000", "002", "003", "004"}
    assert all(set(known) == set(STATES.values()) for known in PAPERS.values())


def test_the_summary_counts_the_items() -> None:
    states = ("ran", "ready", "differs")
    lines = {
        paper: [sum(len(row[COLUMN[state]].split("; ")) for row in known[state]) for state in states] + [0]
        for paper, known in PAPERS.items()
    }
    lines["all"] = [sum(column) for column in zip(*lines.values(), strict=True)]
    wanted = [f"| {name} | {sum(line)} | {' | '.join(map(str, line))} |" for name, line in lines.items()]
    assert "\n".join(wanted) in TEXT


@pytest.mark.parametrize("row", RAN, ids=[row[0] for row in RAN])
def test_what_ran_names_its_command(row: list[str]) -> None:
    words = row[0].strip("`").split()
    if words[0] == "palimpsest":
        group = get_command(app)
        assert isinstance(group, TyperGroup)
        assert words[1] in group.list_commands(Context(group))
    else:
        assert words[:2] == ["python", "-m"]
        assert ROOT.joinpath(*words[2].split(".")).with_suffix(".py").is_file()


def test_every_row_that_differs_says_how() -> None:
    assert all(len(row) == 2 and row[1] for known in PAPERS.values() for row in known["differs"])
