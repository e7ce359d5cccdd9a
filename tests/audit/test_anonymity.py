"""Rows that copy members single out, link and give away; rows that know nothing do so of members and others alike."""

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from palimpsest.audit.anonymity import (
    AnonymityAudit,
    Evidence,
    WordView,
    audit_anonymity,
    infer_label,
    infer_word,
    link,
    meeting_chance,
    residual_risk,
    risk_cap,
    single_out,
    sort_by_rarity,
)
from palimpsest.audit.membership import Control
from palimpsest.audit.statistics import Estimate, Interval, Rate, wilson
from palimpsest.audit.units import Released
from palimpsest.errors import DataError
from palimpsest.records.record import Record

COINS = Control(Estimate(0.5, 0.4, 0.6), Interval(0.4, 0.6))
LABELS = ("red", "blue")


def rows(seed, count):
    """Labelled texts of common words; one word of many, which another one goes with."""
    rng = np.random.default_rng(seed)
    texts = [[f"w{number}" for number in rng.zipf(1.4, 12) % 300] for _ in range(count)]
    return [Record(" ".join([*text, f"name{rng.integers(500)}"]), LABELS[rng.integers(2)]) for text in texts]


def audit(released, best=None, neighbours=3):
    return audit_anonymity(released, COINS, labelled=True, neighbours=neighbours, claim=1.0, best=best, seed=0)


def world(synthetic, seed=0, side=120):
    members, nonmembers = rows(100 + seed, side), rows(200 + seed, side)
    return Released(synthetic(members), members, nonmembers, [row.text for row in rows(300 + seed, 100)])


def rate(count, n):
    return Rate(count, n, *wilson(count, n, 0.95))


def pure(epsilon):
    return lambda fpr: min(1.0, math.exp(epsilon) * fpr, 1 - (1 - fpr) * math.exp(-epsilon))


def test_copies_of_members_are_at_risk_by_every_criterion():
    found = audit(world(lambda members: [*members[:80], *rows(1, 80)])).attacks
    assert set(found) == {"singling_out", "linkability", "inference_word", "inference_label"}
    for name, evidence in found.items():
        assert evidence.risk.low > 0.15, name
        assert evidence.informed, name


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_know_nothing_put_nobody_at_risk(seed):
    for name, evidence in audit(world(lambda members: rows(10 + seed, 160), seed)).attacks.items():
        assert evidence.risk.low < 0.05, name
        assert abs(evidence.main.rate - evidence.control.rate) < 0.2, name


def test_success_on_a_record_does_not_depend_on_a_coin():
    first = world(lambda members: [*members[:20], *rows(1, 20)], side=40)
    coins = np.random.default_rng(0).permutation(80) < 30
    sides = [[row for row, coin in zip(first.records, coins, strict=True) if coin == side] for side in (True, False)]
    turned = replace(first, members=sides[0], nonmembers=sides[1])
    order = [first.records.index(row) for row in turned.records]
    one, other = WordView.of(first), WordView.of(turned)
    for attack in (lambda view: single_out(view, 0), lambda view: link(view, 3), infer_word, infer_label):
        before, after = attack(one), attack(other)
        assert 0 < before.hits.sum() < 80
        assert (before.hits[order] == after.hits).all()
        assert (before.chance[order] == after.chance).all()


def test_rarest_words_come_first():
    assert sort_by_rarity(["the", "cat", "the", "zebra", "apples"], {"the": 9, "cat": 1}) == [
        "apples",
        "zebra",
        "cat",
        "the",
    ]


def test_a_predicate_singles_out_the_only_record_it_holds_for():
    members, nonmembers = [Record("red old bike"), Record("red new bike")], [Record("blue old bike"), Record("sofa")]
    synthetic = [Record("old red"), Record("bike"), Record("a sofa")]
    hits = single_out(WordView.of(Released(synthetic, members, nonmembers, [])), 0).hits
    assert hits.tolist() == [True, False, False, True]  # "red" and "old" together; "sofa"


def test_random_combinations_of_the_same_words_are_the_baseline():
    members, nonmembers = rows(1, 60), rows(2, 60)
    outcome = single_out(WordView.of(Released(members, members, nonmembers, [])), 0)
    assert outcome.hits[:60].mean() > outcome.chance[:60].mean() > 0.0


def test_halves_that_meet_in_one_row_are_linked():
    members, nonmembers = [Record("a b c d")], [Record("a b e f"), Record("x y z u")]
    view = WordView.of(Released([Record("a b c d"), Record("e f g h")], members, nonmembers, []))
    linked = link(view, 1)
    assert linked.hits.tolist() == [True, False, False]  # the last one shares no word with any row
    assert linked.chance.tolist() == pytest.approx([0.5] * 3)


def test_the_rarest_word_is_guessed_from_the_rest():
    public = ["my printer is broken again"]
    members = [Record("my printer is broken says quorbra")]
    nonmembers = [Record("my printer is broken says veltrix"), Record("nothing alike")]
    view = WordView.of(
        Released([Record("printer is broken says quorbra"), Record("other")], members, nonmembers, public)
    )
    outcome = infer_word(view)
    assert outcome.hits.tolist() == [True, False, False]
    assert outcome.chance.tolist() == [0.5, 0.0, 0.0]


def test_the_label_is_guessed_from_the_nearest_row():
    synthetic = [Record("a b c", "x"), Record("d e f", "y"), Record("d e g", "y")]
    records = [Record("a b", "x"), Record("d e", "x"), Record("q", "y")]
    outcome = infer_label(WordView.of(Released(synthetic, records[:1], records[1:], [])))
    assert outcome.hits.tolist() == [True, False, False]
    assert outcome.chance.tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3])


def test_unlabelled_rows_have_no_label_to_infer():
    released = world(lambda members: rows(1, 20), side=20)
    found = audit_anonymity(released, COINS, labelled=False, neighbours=2, claim=None, best=None, seed=0)
    assert "inference_label" not in found.attacks


def test_risk_is_what_the_main_attack_does_beyond_the_control():
    risk = residual_risk(rate(60, 100), rate(20, 100))
    assert risk.value == pytest.approx(0.5)
    assert risk.low < 0.5 < risk.high < 1.0
    assert residual_risk(rate(20, 100), rate(20, 100)).value == 0.0
    assert residual_risk(rate(10, 100), rate(20, 100)).value == pytest.approx(-0.125)
    assert residual_risk(rate(100, 100), rate(0, 100)).high == 1.0


def test_nothing_is_left_to_risk_where_the_control_always_succeeds():
    """Such an attack shows nothing: it is inconclusive, and no number stands in its file."""
    assert residual_risk(rate(9, 10), rate(10, 10)) is None
    found = Evidence("inference", rate(9, 10), rate(10, 10), 0.5, None, None, None)
    body = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (body["risk"], body["inconclusive"]) == (None, "the attack succeeds on all that were never read too")
    assert Evidence.from_json(body) == found
    shown = replace(found, risk=residual_risk(rate(9, 10), rate(9, 10)))
    assert replace(shown, planted=Estimate(0.9, 0.8, 1.0)).inconclusive is None
    for planted in (None, Estimate(0.1, -0.1, 0.3)):
        assert "planted" in replace(shown, planted=planted).inconclusive


@pytest.mark.parametrize(
    ("main", "control"), [(0.5, 0.2), (0.1, 0.1), (0.02, 0.01), (0.9, 0.5), (0.3, 0.0), (0.2, 0.6)]
)
def test_the_interval_of_the_risk_covers_the_truth(main, control):
    rng, truth = np.random.default_rng(0), (main - control) / (1 - control)
    draws = zip(rng.binomial(300, main, 1000).tolist(), rng.binomial(300, control, 1000).tolist(), strict=True)
    risks = [residual_risk(rate(one, 300), rate(other, 300)) for one, other in draws]
    covered = np.mean([risk.low <= truth <= risk.high for risk in risks])
    assert 0.93 < covered < 0.99


def test_the_cap_is_that_of_the_curve_at_the_worst_control_rate():
    for count, epsilon in ((50, 1.0), (3, 2.0), (95, 0.5)):
        control = rate(count, 100)
        expected = max((pure(epsilon)(c) - c) / (1 - c) for c in np.linspace(control.low, control.high, 501))
        assert risk_cap(control, pure(epsilon)) == pytest.approx(expected)
    assert risk_cap(control, lambda fpr: fpr) == 0.0
    assert risk_cap(rate(10, 10), pure(1.0)) == pytest.approx(1 - math.exp(-1), abs=1e-6)
    assert risk_cap(rate(0, 1000), pure(1.0)) < 0.01 < risk_cap(rate(0, 100), pure(1.0))


def test_a_release_that_spends_its_whole_epsilon_stays_below_the_cap():
    rng = np.random.default_rng(0)
    keep = math.e / (1 + math.e)
    main, control = rate(int(rng.binomial(1000, keep)), 1000), rate(int(rng.binomial(1000, 1 - keep)), 1000)
    risk, cap = residual_risk(main, control), risk_cap(control, pure(1.0))
    assert risk.low < cap
    assert cap - risk.value < 0.05
    assert residual_risk(rate(950, 1000), control).low > cap


@pytest.mark.parametrize(("count", "n"), [(1, 4), (2, 6), (2, 3), (3, 7)])
def test_the_chance_of_a_meeting_equals_counting(count, n):
    pairs = [(set(one), set(other)) for one in combinations(range(n), count) for other in combinations(range(n), count)]
    assert meeting_chance(n, count) == pytest.approx(np.mean([bool(one & other) for one, other in pairs]))


def test_rows_without_a_word_are_an_error():
    with pytest.raises(DataError, match="no word"):
        audit(Released([Record("...")], [Record("a")], [Record("b")], []))


def test_json_has_the_published_shape_and_calls_nothing_anonymous():
    document = audit(world(lambda members: rows(1, 30), side=30), best=pure(1.0)).to_json("dp3")
    assert set(document) == {"variant", "zone", "unit", "members", "nonmembers", "control", "attacks", "claim"}
    evidence = document["attacks"]["linkability"]
    assert set(evidence) == {
        "criterion", "main", "control", "baseline", "risk", "inconclusive", "cap", "informed", "planted",
    }  # fmt: skip
    assert {one["criterion"] for one in document["attacks"].values()} == {"singling out", "linkability", "inference"}
    assert AnonymityAudit.from_json(json.loads(json.dumps(document))).to_json("dp3") == document
    assert 0.0 <= evidence["cap"] <= 1 - math.exp(-1) + 1e-6
    assert "anonym" not in str(document)
