"""The table of private classifiers: each beside every row that the same evaluator scored."""

from report_world import classifier, page_of, results, utility, world_metrics, world_receipts

from palimpsest.report.sections import utility as section
from palimpsest.report.sections.base import Page


def page(beside: str | None = "minilm_lr") -> Page:
    metrics = {**world_metrics(), "judge3": {"classifier": classifier("judge3", 0.74, beside)}}
    return page_of(metrics, world_receipts())


def test_private_classifiers_stand_before_those_of_rows() -> None:
    lines = section.lines(page())
    assert [line.name for line in lines] == ["judge3", "dp3", "inf", "real", "public_only"]
    assert (lines[0].epsilon, lines[0].scored.accuracy.value) == (2.97, 0.74)
    assert (lines[1].epsilon, lines[2].epsilon) == (2.98, None)
    assert lines[1].scored.accuracy.value == utility("dp3", 0.812, 1)["evaluators"]["minilm_lr"]["accuracy"]


def test_it_is_no_row_of_the_results() -> None:
    assert "judge3" not in [row.variant for row in page().summary.rows]


def test_without_an_evaluator_of_labels_it_stands_alone() -> None:
    assert [line.name for line in section.lines(page(None))] == ["judge3"]


def test_the_table_says_epsilon_accuracy_and_macro_f1() -> None:
    (table,) = section.CLASSIFIERS.tables(page())
    cells = [column.shown(table.lines[0])[0].text for column in table.columns]
    assert cells[:4] == ["judge3", "private rows, with noise", "2.97", "74.0%"]
    assert cells[4].endswith("%")
    assert cells[5] == "81.1%"


def test_nothing_is_shown_where_none_was_scored() -> None:
    assert not list(section.CLASSIFIERS.tables(page_of(world_metrics(), world_receipts())))
    assert section.lines(Page(page().summary, results(world_metrics()), {}, page().ledger)) == []
