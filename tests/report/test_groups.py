"""Groups that public patterns tell apart: shares and accuracies are plain counts of the right rows."""

from pathlib import Path

import numpy as np
import pytest
from report_world import page_of, world_metrics, world_receipts

from palimpsest.audit.groups import group_scores
from palimpsest.audit.statistics import Rate
from palimpsest.audit.utility import UtilityScores
from palimpsest.errors import ParamsError
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.report.sections import utility

TEXTS = ["She ran.", "He ran.", "Shelf.", "A long day."]
TEST = ["he fell", "HER cat", "she won", "they", "a dog", "shed"]
RIGHT = {"tfidf_lr": np.array([1, 0, 1 / 3, 1, 1, 1])}
WOMEN = {"women": r"\b(she|her)\b"}


def test_shares_and_accuracies_are_those_of_the_rows_that_match() -> None:
    found = group_scores(WOMEN, TEXTS, TEST, RIGHT)["women"]
    assert (found.rows, found.test) == (Rate.wilson(1, 4), Rate.wilson(2, 6))
    one = found.accuracy["tfidf_lr"]
    assert (one.inside.value, one.outside.value) == pytest.approx((1 / 6, 1.0))
    assert one.gap.value == pytest.approx(1 / 6 - 1.0)
    assert one.gap.low < one.gap.value < one.gap.high


@pytest.mark.parametrize("pattern", ["nobody", ""])
def test_a_group_of_no_row_or_of_all_is_not_compared(pattern: str) -> None:
    assert group_scores({"g": pattern}, TEXTS, TEST, RIGHT)["g"].accuracy == {}


def test_it_is_read_back_and_the_page_has_a_line_for_each_classifier() -> None:
    groups = group_scores(WOMEN, TEXTS, TEST, RIGHT)
    document = UtilityScores(4, 6, {}, groups=groups).to_json("dp3")
    assert UtilityScores.from_json(document).groups == groups
    metrics = world_metrics()
    metrics["dp3"]["utility"] |= {"groups": document["groups"]}
    _, table = utility.SECTION.tables(page_of(metrics, world_receipts()))
    (line,) = [[column.shown(line)[0].text for column in table.columns] for line in table.lines]
    assert line == ["dp3", "women", "tfidf_lr", "25.0%", "33.3%", "16.7%", "100.0%", "-83.3%"]


def test_what_is_no_pattern_is_refused() -> None:
    text = Path(FILE).read_text(encoding="utf-8")
    with pytest.raises(ParamsError, match=r"utility.groups.odd is no regular expression"):
        loads(text + "\nutility: {groups: {odd: '('}}\n" if "\nutility:" not in text else text)
