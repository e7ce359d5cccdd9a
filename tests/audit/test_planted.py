"""An attack must find near copies of records before its silence says anything, in whatever script they are."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.scripts import GRAMMARS, draw_records
from palimpsest.audit.anonymity import AnonymityAudit, audit_anonymity
from palimpsest.audit.membership import Control
from palimpsest.audit.memorisation import LikenessRules, MemorisationAudit, memorisation
from palimpsest.audit.ngrams import ngram_audit
from palimpsest.audit.statistics import Bootstrap, Estimate, Interval
from palimpsest.audit.text_membership import text_attacks
from palimpsest.audit.units import Released, cut, draw_sides, find_planted, finds_copies, plant
from palimpsest.errors import DataError
from palimpsest.records.record import Record

SIDE = 120
COINS = Control(Estimate(0.5, 0.4, 0.6), Interval(0.4, 0.6))


def released(texts: Sequence[Record]) -> Released:
    """A release that has nothing of these records."""
    rows = [Record("nothing of all that", "good")]
    return Released(rows, texts[:SIDE], texts[SIDE : 2 * SIDE], [row.text for row in texts[2 * SIDE :]])


def planted(world: Released) -> Released:
    return plant(world, seed=3)


def repeated(world: Released) -> MemorisationAudit:
    return memorisation(world, None, LikenessRules(similarity=0.7, shingle=3, closeness=0.8), seed=0)


def at_risk(world: Released) -> AnonymityAudit:
    return audit_anonymity(world, COINS, labelled=False, neighbours=5, claim=None, best=None, seed=0)


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


@pytest.mark.parametrize("script", GRAMMARS)
def test_copies_and_values_planted_in_texts_of_every_script_are_found(script: str) -> None:
    world = released(draw_records(GRAMMARS[script], 3 * SIDE, np.random.default_rng(1)))
    found = repeated(world)
    assert found.near_duplicates.judges
    assert not found.near_duplicates.records.exposed.count  # of the rows themselves
    judged = {kind for kind, one in found.personal.items() if one.judges}
    names = {"name"} if script in ("English", "Russian") else set()  # others have no capitals
    assert judged == {"email", "iban", "card", "phone", "identifier"} | names
    attacks = at_risk(world).attacks
    assert attacks["linkability"].inconclusive is attacks["inference_word"].inconclusive is None


@pytest.mark.parametrize("sign", ["😀", "?"])
def test_neither_copies_nor_risks_are_judged_where_texts_have_too_few_words(sign: str) -> None:
    world = released([Record(sign * (1 + number % 9), "good") for number in range(3 * SIDE)])
    found = repeated(world)
    assert not any(one.judges for one in (found.near_duplicates, *found.personal.values()))
    for evidence in at_risk(world).attacks.values():
        assert "planted" in str(evidence.inconclusive)


def test_texts_in_which_nobody_stands_out_are_not_judged_by_singling_out() -> None:
    """A copy singles nobody out either where every text has the same words."""
    rng = np.random.default_rng(0)
    texts = [Record(" ".join(f"w{word}" for word in rng.permutation(12)), "good") for _ in range(3 * SIDE)]
    attacks = at_risk(released(texts)).attacks
    assert "planted" in str(attacks["singling_out"].inconclusive)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", "one two "),
        (" ".join("abcdefghijklmnopqrstuvwxy"), " ".join("abcdefghijklmnopqrstuvw") + " "),
        ("很好用。", "很好"),
        ("word", "wo"),
        ("", ""),
    ],
)
def test_a_cut_copy_lacks_its_last_words(text: str, expected: str) -> None:
    assert cut(text, np.random.default_rng(0)) == expected


def test_both_sides_of_what_is_planted_are_of_one_size_and_apart() -> None:
    records = [Record(str(number)) for number in range(7)]
    planted, others = draw_sides(records, 0)
    assert len(planted) == len(others) == 3
    assert not {one.text for one in planted} & {one.text for one in others}
    assert [len(side) for side in draw_sides(records, 0, most=2)] == [2, 2]
