"""`custext`: not private for records, never for release, and every word of its rows is of the public map."""

import math
from dataclasses import replace

import numpy as np
import pytest

from palimpsest.errors import DataError, LedgerError, ParamsError
from palimpsest.methods.baselines.custext.fit import CusText, Replaced
from palimpsest.methods.baselines.custext.settings import CusTextSettings
from palimpsest.methods.shared.base import Budget, Generator
from palimpsest.privacy.accounting import is_private
from palimpsest.privacy.words import WordSets
from palimpsest.records.record import Record
from tests.methods.two_classes import WORDS, two_class_records

NAMES = tuple(WORDS)
REFERENCE = Budget(math.inf, 1e-3)
SETTINGS = CusTextSettings(token_epsilon=2.0, neighbours=4, vocabulary=8)
SETS = WordSets(tuple(WORDS.values()), np.tile(np.eye(4), (2, 1, 1)))


@pytest.fixture
def custext(schema) -> Generator[Replaced]:
    return CusText(SETTINGS, schema, SETS)


def test_plan_tells_its_numbers_and_that_it_is_not_private(custext, schema):
    plan = custext.plan(schema, REFERENCE)
    assert plan.numbers == {"token_epsilon": 2.0, "neighbours": 4, "vocabulary": 8}
    assert [query.name for query in plan.queries] == ["replaced_words"]
    assert not is_private(plan.event)
    assert CusText(SETTINGS, schema).plan(schema, REFERENCE) == plan


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 1e6])
def test_a_finite_epsilon_is_refused(custext, schema, epsilon):
    with pytest.raises(ParamsError, match="words, not records"):
        custext.plan(schema, replace(REFERENCE, epsilon=epsilon))


def test_a_vocabulary_without_a_set_is_refused(schema):
    with pytest.raises(ParamsError, match="no set"):
        CusText(SETTINGS.model_copy(update={"neighbours": 9}), schema).plan(schema, REFERENCE)


def test_a_release_is_refused(custext, schema, open_view, ledger):
    plan = custext.plan(schema, REFERENCE)
    with pytest.raises(LedgerError, match="without noise"), open_view(plan, "release") as view:
        custext.fit(view, plan)
    assert ledger.charges("tiny") == []


def test_without_a_map_nothing_is_asked(schema, open_view, ledger):
    generator = CusText(SETTINGS, schema)
    plan = generator.plan(schema, REFERENCE)
    with pytest.raises(DataError, match="no map"), open_view(plan, "reference") as view:
        generator.fit(view, plan)
    assert all(charge.state != "spent" for charge in ledger.charges("tiny"))


def test_fit_and_sample_replace_each_word_within_its_set(custext, schema, open_view):
    plan = custext.plan(schema, REFERENCE)
    with open_view(plan, "reference") as view:
        artifact = custext.fit(view, plan)
    assert artifact.counts == {"praise": 48, "a complaint": 48}
    assert artifact.empty == 0
    rows = list(custext.sample(artifact, artifact.counts))
    assert len(rows) == len(two_class_records())
    assert all(len(row.text.split()) == 2 and set(row.text.split()) <= set(WORDS[row.label]) for row in rows)
    kept = [row.text for row in two_class_records()]
    changed = sum(old.split()[3] != new.text.split()[0] for old, new in zip(kept, rows, strict=True))
    assert 20 < changed < 76  # 96 times 3 / (3 + e)


def test_rows_without_a_known_word_are_left_out(schema, open_view):
    sets = WordSets((("great", "fine"), ("zeppelin", "yawl")), np.ones((2, 2, 2)))
    generator = CusText(SETTINGS, schema, sets)
    plan = generator.plan(schema, REFERENCE)
    with open_view(plan, "reference") as view:
        artifact = generator.fit(view, plan)
    known = [row for row in two_class_records() if {"great", "fine"} & set(row.text.rstrip(".").split())]
    assert artifact.counts == {"praise": len(known)}
    assert artifact.empty == 96 - len(known)


def test_sample_gives_at_most_what_is_asked():
    rows = [Record("one", "praise"), Record("two", None), Record("three", "praise"), Record("four", "praise")]
    artifact = Replaced(rows, 0)
    assert artifact.counts == {"praise": 3, "": 1}
    found = list(CusText(SETTINGS, None).sample(artifact, {"": 5, "praise": 2, "a complaint": 4}))
    assert found == [rows[1], rows[0], rows[2]]
