"""What is listed once is shown once: metric files, sections, headings, columns and tables."""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from altair.utils.schemapi import SchemaValidationError
from report_world import decoder, page_of, results, whole_world, world_models
from ruamel.yaml import YAML

from palimpsest.report.drawing import data
from palimpsest.report.formats import MISSING
from palimpsest.report.page import verdicts
from palimpsest.report.sections import HEADINGS, METRICS, SECTIONS, gallery
from palimpsest.report.sections.base import Column, Page, Section

ROOT = Path(__file__).parents[2]
FOLDER = "reports/metrics/"
NOT_OF_THE_DEMO = {"{}/structure.json", "{}/fields.json", "familiarity.json"}  # of stages that it has no use for
FOR_DVC_ALONE = {"pretrain.json"}  # how well the public model predicts public text


@cache
def world() -> Page:
    """Everything that a page may show."""
    found = whole_world()
    page = page_of(found["metrics"], found["receipts"])
    measured = results(found["metrics"], world_models(), {"prefix": decoder()})
    return Page(page.summary, measured, page.receipts, page.ledger)


def written() -> set[str]:
    """The metric files of all stages, with a place for whose they are."""
    stages = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    bodies = [stage.get("do", stage) for stage in stages.values()]
    entries = [entry for body in bodies for key in ("outs", "metrics") for entry in body.get(key, [])]
    paths = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
    found = [path.removeprefix(FOLDER) for path in paths if path.startswith(FOLDER)]
    return {re.sub(r"\$\{[^}]*\}|^real(?=/)|^public_only(?=/)", "{}", path) for path in found} - FOR_DVC_ALONE


def test_every_metric_file_that_a_stage_writes_is_read_by_one_section() -> None:
    read = [metric.file("{}") for metric in METRICS]
    assert sorted(read) == sorted({*written(), *NOT_OF_THE_DEMO})


def test_every_section_says_something_once() -> None:
    page = world()
    figures = Counter(figure.title for section in SECTIONS for figure in section.figures(page))
    tables = Counter(table.title for section in SECTIONS for table in section.tables(page) if table.lines)
    plots = Counter(name for section in SECTIONS for name in section.plots)
    assert set((figures + tables + plots).values()) == {1}
    assert [section.name for section in SECTIONS if not _says(section, page)] == []
    assert len(gallery(page)) == figures.total()


def _says(section: Section, page: Page) -> bool:
    shown = [*section.figures(page), *section.columns(page), *section.plots]
    return bool(shown) or any(table.lines for table in section.tables(page))


def test_figures_stand_under_every_heading_in_its_order() -> None:
    assert tuple(dict.fromkeys(figure.section for figure in gallery(world()))) == HEADINGS


def test_every_drawing_holds_to_the_schema_of_its_library() -> None:
    """A page is written without this look, which takes seconds."""
    for figure in gallery(world()):
        figure.chart.to_dict(validate=True)
    with pytest.raises(SchemaValidationError):
        alt.Chart(data([])).mark_point().encode(x=alt.X("a:Q", axis=alt.Axis(title=3))).to_dict()


def test_every_column_says_something_of_some_line() -> None:
    page = world()
    for table in (verdicts(page), *(table for section in SECTIONS for table in section.tables(page))):
        silent = [
            column.name
            for column in table.columns
            if table.lines and all(_silent(column, line) for line in table.lines)
        ]
        assert (table.title, silent) == (table.title, [])


def _silent(column: Column[Any], line: Any) -> bool:
    cell, _ = column.shown(line)
    return cell.text == MISSING
