"""`custext`: not private for records, never for release, and every word of its rows is of the public map."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from palimpsest.errors import LedgerError, ParamsError
from palimpsest.methods.shared.base import Budget
from palimpsest.privacy.accounting import is_private
from palimpsest.privacy.words import WordSets
from palimpsest.records.record import Record
from palimpsest_lab.methods.custext.declaration import CusTextSettings
from palimpsest_lab.methods.custext.fit import CusText
from palimpsest_lab.methods.custext.fit import plan as planned
from tests.methods.two_classes import WORDS, two_class_records

NAMES = tuple(WORDS)
REFERENCE = Budget(math.inf, 1e-3)
SETTINGS = CusTextSettings(token_epsilon=2.0, neighbours=4, vocabulary=8)
SETS = WordSets(tuple(WORDS.values()), np.tile(np.eye(4), (2, 1, 1)))


def test_plan_tells_its_numbers_and_that_it_is_not_private():
    plan = planned(SETTINGS, REFERENCE)
    assert plan.numbers == {"token_epsilon": 2.0, "neighbours": 4, "vocabulary": 8}
    assert [query.name for query in plan.queries] == ["replaced_words"]
    assert not is_private(plan.event)


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 1e6])
def test_a_finite_epsilon_is_refused(epsilon):
    with pytest.raises(ParamsError, match="words, not records"):
        planned(SETTINGS, replace(REFERENCE, epsilon=epsilon))


def test_a_vocabulary_without_a_set_is_refused():
    with pytest.raises(ParamsError, match="no set"):
        planned(SETTINGS.model_copy(update={"neighbours": 9}), REFERENCE)


def test_a_release_is_refused(open_view, ledger):
    plan = planned(SETTINGS, REFERENCE)
    with pytest.raises(LedgerError, match="without noise"), open_view(plan, "release") as view:
        CusText(plan, SETS).ask(view)
    assert ledger.charges("tiny") == []


def test_fit_and_sample_replace_each_word_within_its_set(open_view):
    plan = planned(SETTINGS, REFERENCE)
    with open_view(plan, "reference") as view:
        artifact = CusText(plan, SETS).ask(view)
    made = CusText(plan, SETS).made(artifact)
    rows, before = made.rows, two_class_records()
    assert (made.drawn, made.removed) == (len(before), {"empty": 0})
    assert Counter(row.label for row in rows) == {"praise": 48, "a complaint": 48}
    assert all(len(row.text.split()) == 2 and set(row.text.split()) <= set(WORDS[row.label]) for row in rows)
    kept = [row.text for row in two_class_records()]
    changed = sum(old.split()[3] != new.text.split()[0] for old, new in zip(kept, rows, strict=True))
    assert 20 < changed < 76  # 96 times 3 / (3 + e)


def test_rows_without_a_known_word_are_left_out(open_view):
    sets = WordSets((("great", "fine"), ("zeppelin", "yawl")), np.ones((2, 2, 2)))
    plan = planned(SETTINGS, REFERENCE)
    with open_view(plan, "reference") as view:
        made = CusText(plan, sets).made(CusText(plan, sets).ask(view))
    known = [row for row in two_class_records() if {"great", "fine"} & set(row.text.rstrip(".").split())]
    assert Counter(row.label for row in made.rows) == {"praise": len(known)}
    assert made.removed == {"empty": 96 - len(known)}


def test_rows_stand_label_by_label_and_empty_ones_are_left_out():
    rows = [Record("one", "praise"), Record("two", None), Record("", "praise"), Record("three", "praise")]
    made = CusText(planned(SETTINGS, REFERENCE), SETS).made(rows)
    assert made.rows == [rows[0], rows[3], rows[1]]
