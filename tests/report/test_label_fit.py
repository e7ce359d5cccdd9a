"""Whether rows fit their labels: turned labels do not, and real test rows are the yardstick."""

from itertools import cycle
from pathlib import Path

import pytest
from report_world import page_of, world_metrics, world_receipts

from palimpsest.audit.groups import LabelFit
from palimpsest.audit.statistics import Estimate, wilson
from palimpsest.audit.utility import UtilityScores
from palimpsest.cli.look import fit_of_labels
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.records.record import Record
from palimpsest.report.sections import utility
from palimpsest.work.look import Compared, Comparison
from stages.downstream_eval import Judges, Part

PARAMS = loads(Path(FILE).read_text(encoding="utf-8"))
LABELS = tuple(PARAMS.dataset.labels)
FIT = LabelFit(Estimate(0.8, 0.75, 0.85), Estimate(0.9, 0.88, 0.92))


def rows(count: int, turned: int = 0) -> Part:
    """Texts that name what they are about; the first `turned` of them bear the next label."""
    after = dict(zip(LABELS, [*LABELS[1:], LABELS[0]], strict=True))
    told = zip(range(count), cycle(LABELS))
    return Part([Record(f"{label} {n % 9}", after[label] if n < turned else label) for n, label in told], asset=True)


def test_rows_that_bear_another_label_do_not_fit() -> None:
    found = Judges(PARAMS).label_fit(rows(100), rows(80, turned=20), rows(60, turned=6))
    assert found == LabelFit(Estimate(0.75, *wilson(60, 80)), Estimate(0.9, *wilson(54, 60)))


def test_what_has_no_labels_has_no_fit() -> None:
    bare = PARAMS.model_copy(update={"dataset": PARAMS.dataset.model_copy(update={"labels": {}})})
    assert Judges(bare).label_fit(rows(100), rows(20), rows(20)) is None


def test_no_more_rows_are_read_than_params_yaml_says() -> None:
    few = PARAMS.model_copy(update={"utility": PARAMS.utility.model_copy(update={"most_rows": 100})})
    everything, some = rows(250), Judges(few).part(rows(250).rows, asset=True)
    assert Judges(PARAMS).part(everything.rows, asset=True).rows == everything.rows
    assert some.rows == Judges(few).part(everything.rows, asset=True).rows
    assert len(some.rows) == 100
    assert Judges(few).score(some, some).rows == 100


def test_it_is_read_back() -> None:
    document = UtilityScores(80, 60, {}, FIT).to_json("dp3")
    assert UtilityScores.from_json(document).label_fit == FIT


def test_the_page_shows_both_shares_of_every_variant_that_has_them() -> None:
    page = page_of(world_metrics(), world_receipts())
    (table,) = utility.SECTION.tables(page)
    cells = [[column.shown(line)[0] for column in table.columns] for line in table.lines]
    assert [[cell.text for cell in line] for line in cells] == [[name, "80.0%", "90.0%"] for name in ("dp3", "inf")]
    assert cells[0][1].small == ("75.0% to 85.0%",)
    (row,) = (row for row in page.summary.rows if row.variant == "dp3")
    assert row.label_fit == FIT


@pytest.mark.parametrize("fit", [FIT, None])
def test_compare_says_both_shares(fit: LabelFit | None) -> None:
    line = Compared("dp3", "release", "dp_lm", 2.98, None, None, None, None, None, {}, None, None, label_fit=fit)
    said = " ".join(fit_of_labels(Comparison((line,), ())))
    assert said.endswith("dp3 80.0% (75.0 to 85.0%); real test rows 90.0% (88.0 to 92.0%).") if fit else said == ""
