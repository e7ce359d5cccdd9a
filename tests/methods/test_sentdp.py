"""`sentdp`: plans meet their budget whatever the labels' shares, and what is picked is deep in the label's cloud."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from palimpsest.errors import LedgerError, ParamsError
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.means import Candidates
from palimpsest.privacy.accounting import epsilon, is_private, zcdp_rho
from palimpsest.records.record import Record
from palimpsest_lab.methods.sentdp.declaration import SentDpSettings
from palimpsest_lab.methods.sentdp.fit import SentDp
from palimpsest_lab.methods.sentdp.fit import plan as planned
from tests.methods.two_classes import FOREIGN, PUBLIC, WORDS, label_of, two_class_records

BUDGET = Budget(3.0, 1e-3)


def embed(texts: Sequence[str]) -> np.ndarray:
    """Talk of things that are so, how good they are, all else, and two numbers that spread texts of one kind."""
    found = []
    for text in texts:
        words = set(text.replace(".", "").replace(",", "").split())
        signs = [float(bool(words & set(own))) for own in WORDS.values()]
        spread = (np.frombuffer(hashlib.blake2b(text.encode(), digest_size=2).digest(), np.uint8) - 127.5) / 255.0
        found.append([2.0 * ("is" in words), *signs, 9.0 * ("is" not in words), *spread])
    return np.array(found)


@pytest.fixture
def candidates() -> Candidates:
    return Candidates(PUBLIC, embed(PUBLIC))


def picked_by(**changes: object) -> SentDpSettings:
    """Settings without a histogram; keyword arguments replace them."""
    settings = {
        "rows": 14, "label_counts": "prior", "prior": None, "histogram_share": 0.05, "batch": 1, "directions": 30,
    }  # fmt: skip
    return SentDpSettings(**{**settings, **changes})  # type: ignore[arg-type]


# Plans.


@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
@pytest.mark.parametrize("rows", [1, 14, 5000])
@pytest.mark.parametrize("delta", [1e-3, 1.63e-5])
@pytest.mark.parametrize("target", [0.12345, 1.0, 3.0, 10.0])
def test_plan_spends_the_budget_and_no_more(schema, label_counts, rows, delta, target):
    plan = planned(picked_by(label_counts=label_counts, rows=rows), schema, Budget(target, delta))
    assert 0.9999 * target <= epsilon(plan.event, delta) <= target


def test_a_histogram_takes_its_share(schema):
    plan = planned(picked_by(label_counts="noisy", histogram_share=0.2), schema, BUDGET)
    assert [query.name for query in plan.queries] == ["label_histogram", "depth_picks"]
    whole = zcdp_rho(3.0, 1e-3)
    assert 0.5 / float(plan.numbers["histogram_sigma"]) ** 2 == pytest.approx(0.2 * whole)
    assert plan.queries[1].event.rho == pytest.approx(0.8 * whole)


def test_plan_tells_public_numbers(schema):
    plan = planned(picked_by(), schema, BUDGET)
    assert [query.name for query in plan.queries] == ["depth_picks"]
    assert set(plan.numbers) == {"scale", "rows", "directions"}
    assert plan.numbers["scale"] == pytest.approx(math.sqrt(7 / (8 * zcdp_rho(3.0, 1e-3))))
    assert plan.feasible


def test_reference_plan_is_not_private(schema, open_view):
    plan = planned(picked_by(), schema, replace(BUDGET, epsilon=math.inf))
    assert plan.numbers["scale"] == 0
    assert not is_private(plan.event)
    with pytest.raises(LedgerError, match="without noise"), open_view(plan, "release"):
        pass


def test_a_plan_that_noise_drowns_says_so(schema):
    settings = picked_by(rows=2000)
    plan = planned(settings, replace(schema, n_public=40), BUDGET)
    assert not plan.feasible
    for advice in ("fewer rows", "raise epsilon", "use select"):
        assert advice in plan.notes[0]
    assert planned(settings, replace(schema, n_public=4000), BUDGET).feasible
    at_the_edge = 4.0 * float(plan.numbers["scale"])  # a depth of n / 4 for two labels
    assert planned(settings, replace(schema, n_public=math.ceil(at_the_edge)), BUDGET).feasible
    assert not planned(settings, replace(schema, n_public=math.floor(at_the_edge)), BUDGET).feasible


def test_plans_without_labels_or_with_others_are_refused(schema):
    with pytest.raises(ParamsError, match="labels"):
        planned(picked_by(), replace(schema, labels={}), BUDGET)
    with pytest.raises(ParamsError, match="prior"):
        planned(picked_by(prior={"praise": 1.0}), schema, BUDGET)


# Fits.


@pytest.mark.parametrize(("target", "purpose"), [(40.0, "release"), (math.inf, "reference")])
@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
def test_fit_and_sample_find_texts_of_the_right_kind(schema, candidates, open_view, target, purpose, label_counts):
    plan = planned(picked_by(label_counts=label_counts), schema, Budget(target, 1e-3))
    fit = SentDp(picked_by(label_counts=label_counts), schema, plan, candidates, embed)
    with open_view(plan, purpose) as view:
        artifact = fit.ask(view)
    rows = fit.made(artifact).rows
    assert len(rows) == 14
    assert len(set(rows)) == 14
    right = sum(row.text not in FOREIGN and label_of(row.text) == row.label for row in rows)
    assert right == 14 if math.isinf(target) else right >= 10


def test_noise_decides_where_the_budget_is_small(schema, candidates, open_view):
    plan = planned(picked_by(), schema, Budget(0.01, 1e-3))
    fit = SentDp(picked_by(), schema, plan, candidates, embed)
    with open_view(plan, "release") as view:
        first = fit.ask(view)
    with open_view(plan, "release") as view:
        assert fit.ask(view) != first


SHARES = [
    ({"prior": {"praise": 3.0, "a complaint": 1.0}}, {"praise": 9, "a complaint": 3}),
    ({"prior": {"praise": 1.0, "a complaint": 0.0}}, {"praise": 12, "a complaint": 0}),
    ({"rows": 1000}, {"praise": 35, "a complaint": 35}),
    ({"label_counts": "noisy", "prior": {"praise": 1.0, "a complaint": 0.0}}, {"praise": 6, "a complaint": 6}),
]


@pytest.mark.parametrize(
    ("changes", "counts", "target"),
    [(*share, math.inf) for share in SHARES] + [(*share, 40.0) for share in SHARES[:3]],  # those of noise are noisy
)
def test_rows_are_shared_out_by_the_prior_or_by_the_histogram(schema, candidates, open_view, changes, counts, target):
    plan = planned(picked_by(**{"rows": 12, **changes}), schema, Budget(target, 1e-3))
    fit = SentDp(picked_by(**{"rows": 12, **changes}), schema, plan, candidates, embed)
    with open_view(plan, "reference" if math.isinf(target) else "release") as view:
        assert {label: len(own) for label, own in fit.ask(view).items()} == counts


def test_equal_texts_count_as_one(schema, open_view):
    texts = ["same", *PUBLIC, "same", PUBLIC[5]]
    plan = planned(picked_by(rows=200), schema, Budget(math.inf, 1e-3))
    fit = SentDp(picked_by(rows=200), schema, plan, Candidates(texts, embed(texts) + 0.01), embed)
    with open_view(plan, "reference") as view:
        artifact = fit.ask(view)
    for own in artifact.values():
        assert sorted(own) == sorted({"same", *PUBLIC})


def test_texts_are_those_that_the_places_name(schema, open_view):
    """Of doubles the first counts, and those behind them keep their own embeddings."""
    middle = embed([row.text for row in two_class_records() if row.label == "praise"]).mean(axis=0)
    far = np.array([-1.0, -1.0, 0.0, 5.0, 0.0, 0.0])
    texts, points = ["far", "far", "deep", "far away"], np.stack([far, far, middle, 2 * far])
    plan = planned(picked_by(rows=2), schema, Budget(math.inf, 1e-3))
    fit = SentDp(picked_by(rows=2), schema, plan, Candidates(texts, points), embed)
    with open_view(plan, "reference") as view:
        assert fit.ask(view)["praise"] == ["deep"]


def test_those_picked_first_come_first(schema, candidates):
    artifact = {"a complaint": ["d"], "praise": ["a", "b"]}
    fit = SentDp(picked_by(), schema, planned(picked_by(), schema, BUDGET), candidates, embed)
    assert fit.made(artifact).rows == [Record("d", "a complaint"), Record("a", "praise"), Record("b", "praise")]
