"""An attack must find near copies of records before its silence says anything, in whatever script they are."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.scripts import GRAMMARS, draw_records
from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.planted import plant
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.text_membership import find_planted, finds_copies, text_attacks
from palimpsest.audit.units import Released
from palimpsest.errors import DataError
from palimpsest.records.record import Record

SIDE = 120


def released(texts: Sequence[Record]) -> Released:
    """A release that has nothing of these records."""
    rows = [Record("nothing of all that", "good")]
    return Released(rows, texts[:SIDE], texts[SIDE : 2 * SIDE], [row.text for row in texts[2 * SIDE :]])


def planted(world: Released) -> Released:
    return plant(world, seed=3)


@pytest.mark.parametrize("script", GRAMMARS)
def test_attacks_find_copies_planted_in_texts_of_every_script(script: str) -> None:
    world = released(draw_records(GRAMMARS[script], 3 * SIDE, np.random.default_rng(1)))
    found = find_planted(text_attacks(planted(world), order=3, labelled=False, seed=0))
    assert {name for name, auc in found.items() if finds_copies(auc)} == set(found)
    orders = ngram_audit(world, [], [3, 5, 8], Bootstrap(resamples=128, seed=0)).orders
    assert any(one.judges for one in orders.values())
    assert not any(one.train.count for one in orders.values())  # of the rows themselves


@pytest.mark.parametrize("sign", ["😀", "?", "—"])
def test_texts_that_cannot_be_read_are_not_judged(sign: str) -> None:
    world = released([Record(sign * (1 + number % 9), "good") for number in range(3 * SIDE)])
    with pytest.raises(DataError, match="planted"):
        find_planted(text_attacks(planted(world), order=3, labelled=False, seed=0))
    assert not any(one.judges for one in ngram_audit(world, [], [3], Bootstrap(128, 0)).orders.values())


def test_texts_shorter_than_the_order_are_not_judged_by_it() -> None:
    rng = np.random.default_rng(0)
    texts = [Record(" ".join(f"w{word}" for word in rng.integers(500, size=4)), "good") for _ in range(3 * SIDE)]
    orders = ngram_audit(released(texts), [], [3, 5], Bootstrap(resamples=128, seed=0)).orders
    assert (orders[3].judges, orders[5].judges) == (True, False)


def test_what_is_planted_hangs_on_no_coin_and_no_row() -> None:
    texts = draw_records(GRAMMARS["English"], 3 * SIDE, np.random.default_rng(1))
    world = released(texts)
    other = replace(world, synthetic=texts[:SIDE])
    assert plant(world, 3).texts == plant(other, 3).texts
    copies = planted(world)
    assert len(copies.synthetic) == len(copies.members) == len(copies.nonmembers) == 100
    wrong = [
        np.mean([a != b for a, b in zip(row.text, record.text, strict=True) if b.isalpha()])
        for row, record in zip(copies.synthetic, copies.members, strict=True)
    ]
    assert 0.06 < float(np.mean(wrong)) < 0.11
    assert not {row.text for row in copies.members} & {row.text for row in copies.nonmembers}
