"""`select`: plans meet their budget, one query is asked, and what is chosen is in domain, on label and chosen once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.select.fit import Chosen, Select
from palimpsest.methods.select.fit import plan as planned
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import Candidates, ClassSums, choose, estimate_means, public_candidates
from palimpsest.privacy.accounting import epsilon, gdp_epsilon, is_private, zcdp_rho
from palimpsest.privacy.means import GRID, class_steps, unit_rows
from palimpsest.records.record import Record
from tests.methods.two_classes import FOREIGN, NAMES, PUBLIC, WORDS, label_of, two_class_records

BUDGET = Budget(3.0, 1e-3)
ADJECTIVES = [word for words in WORDS.values() for word in words]


def embed(texts: Sequence[str]) -> np.ndarray:
    """A coordinate for talk of things that are so, one per adjective, and one for all else."""
    return np.array(
        [
            [2.0 * ("is" in words), *(words.count(word) for word in ADJECTIVES), 3.0 * ("is" not in words)]
            for words in (text.replace(".", "").replace(",", "").split() for text in texts)
        ]
    )


@pytest.fixture
def candidates() -> Candidates:
    return Candidates(PUBLIC, embed(PUBLIC))


def chosen_by(**changes: object) -> SelectSettings:
    """Settings without a histogram; keyword arguments replace them."""
    settings = {"rows": 14, "label_counts": "prior", "prior": None, "histogram_share": 0.05, "batch": 1, "domain": 0.9}
    return SelectSettings(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture
def select(schema, candidates) -> Callable[[Plan], Select]:
    return lambda plan: Select(chosen_by(), schema, plan, candidates, embed)


# Plans.


@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
@pytest.mark.parametrize("delta", [1e-3, 1.63e-5])
@pytest.mark.parametrize("target", [0.12345, 1.0, 1.23456789, 3.0])
def test_plan_spends_the_budget_and_no_more(schema, label_counts, target, delta):
    plan = planned(chosen_by(label_counts=label_counts), schema, Budget(target, delta))
    assert 0.99 * target <= epsilon(plan.event, delta) <= target


@pytest.mark.parametrize("target", [0.12345, 1.0, 3.0])
def test_without_a_histogram_the_noise_is_exact(select, schema, target):
    sigma = float(planned(chosen_by(), schema, Budget(target, 1e-3)).numbers["sigma"])
    assert 0.99999 * target <= gdp_epsilon(1.0 / sigma, 1e-3) <= target


def test_a_histogram_takes_its_share(schema):
    plan = planned(chosen_by(label_counts="noisy", histogram_share=0.2), schema, BUDGET)
    assert [query.name for query in plan.queries] == ["label_histogram", "class_means"]
    histogram = 0.5 / float(plan.numbers["histogram_sigma"]) ** 2
    assert histogram == pytest.approx(0.2 * zcdp_rho(3.0, 1e-3))
    alone = planned(chosen_by(), schema, BUDGET)
    assert float(plan.numbers["sigma"]) > 1.05 * float(alone.numbers["sigma"])


def test_plan_asks_one_query_and_tells_public_numbers(select, schema):
    plan = planned(chosen_by(), schema, BUDGET)
    assert [query.name for query in plan.queries] == ["class_means"]
    assert plan.feasible
    assert set(plan.numbers) == {"sigma", "rows"}


def test_reference_plan_is_not_private(select, schema):
    plan = planned(chosen_by(), schema, replace(BUDGET, epsilon=math.inf))
    assert plan.numbers["sigma"] == 0
    assert not is_private(plan.event)


def test_a_plan_that_noise_drowns_says_so(select, schema):
    plan = planned(chosen_by(), replace(schema, n_public=4), Budget(0.5, 1e-3))
    assert not plan.feasible
    assert "raise epsilon" in plan.notes[0]


def test_plans_without_a_choice_are_refused(select, schema):
    with pytest.raises(ParamsError, match="two labels"):
        planned(chosen_by(), replace(schema, labels={"only": ""}), BUDGET)


def test_a_prior_of_other_labels_is_refused(schema):
    with pytest.raises(ParamsError, match="prior"):
        planned(chosen_by(prior={"praise": 1.0}), schema, BUDGET)


def test_without_public_text_there_is_nothing_to_choose_from():
    with pytest.raises(DataError, match="no public text"):
        public_candidates(Mock(texts=list))


def test_public_texts_that_a_release_would_refuse_are_no_candidates():
    texts = ["Call +44 20 7946 0958.", "Sold in 1998.", "Write to ann@example.org.", "Lovely."]
    embeddings = {"texts": np.arange(8.0).reshape(4, 2)}
    candidates = public_candidates(Mock(texts=lambda: texts, embeddings=lambda: embeddings))
    assert candidates.texts == ["Sold in 1998.", "Lovely."]
    assert candidates.embeddings.tolist() == [[2.0, 3.0], [6.0, 7.0]]


def test_candidates_need_an_embedding_each():
    with pytest.raises(ValueError, match="2 texts"):
        Candidates(["one", "two"], np.zeros((3, 2)))


# Fits.


@pytest.mark.parametrize(("target", "purpose"), [(8.0, "release"), (math.inf, "reference")])
def test_fit_and_sample_find_texts_of_the_right_kind(select, schema, open_view, ledger, target, purpose):
    plan = planned(chosen_by(), schema, Budget(target, 1e-3))
    with open_view(plan, purpose) as view:
        artifact = select(plan).ask(view)
    assert artifact.sums.sums.shape == (2, 10)
    assert artifact.counts == {"praise": 7, "a complaint": 7}
    rows = select(plan).made(replace(artifact, counts={"a complaint": 10, "praise": 4})).rows
    assert [row.label for row in rows] == ["a complaint"] * 10 + ["praise"] * 4
    assert [label_of(row.text) for row in rows] == [row.label for row in rows]
    assert not {row.text for row in rows} & set(FOREIGN)
    assert len(ledger.charges("tiny")) == 1


def test_fits_are_noised(select, schema, open_view):
    plan = planned(chosen_by(), schema, BUDGET)
    found = []
    for purpose in ("release", "release"):
        with open_view(plan, purpose) as view:
            found.append(select(plan).ask(view).sums.sums)
    assert np.std(found[0] - found[1]) == pytest.approx(math.sqrt(2) * float(plan.numbers["sigma"]), rel=0.8)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"prior": {"praise": 3.0, "a complaint": 1.0}}, {"praise": 9, "a complaint": 3}),
        ({"label_counts": "noisy", "prior": {"praise": 1.0, "a complaint": 0.0}}, {"praise": 6, "a complaint": 6}),
    ],
)
def test_rows_are_shared_out_by_the_prior_or_by_the_histogram(schema, candidates, open_view, changes, counts):
    settings = chosen_by(rows=12, **changes)
    plan = planned(settings, schema, Budget(math.inf, 1e-3))
    with open_view(plan, "reference") as view:
        assert Select(settings, schema, plan, candidates, embed).ask(view).counts == counts


def test_what_is_made_is_repeatable(select, schema):
    counts = dict.fromkeys(NAMES, 5)
    artifact = Chosen(ClassSums(NAMES, np.random.default_rng(0).normal(size=(2, 10))), counts)
    fit = select(planned(chosen_by(), schema, BUDGET))
    assert fit.made(artifact) == fit.made(artifact)


def test_no_more_than_a_share_of_the_public_texts_is_chosen(schema, candidates):
    counts = dict(zip(NAMES, (90, 30), strict=True))
    artifact = Chosen(ClassSums(NAMES, np.random.default_rng(0).normal(size=(2, 10))), counts)
    fit = Select(chosen_by(most=0.4), schema, planned(chosen_by(), schema, BUDGET), candidates, embed)
    share = math.ceil(0.4 * len(candidates.texts))
    labels = [row.label for row in fit.made(artifact).rows]
    assert [labels.count(name) for name in NAMES] == [share * 3 // 4, share // 4]


def oracle(
    candidates: Candidates,
    embeddings: np.ndarray,
    members: Sequence[str | None],
    counts: Mapping[str, int],
    domain: float,
) -> list[Record]:
    """The choice from exact sums, each row a unit of its own; rows of no public label contribute nothing."""
    position: dict[str | None, int] = {label: index for index, label in enumerate(NAMES)}
    known = np.array([member in position for member in members], dtype=bool)
    classes = [position[member] for member in members if member in position]
    exact = class_steps(embeddings[known], classes, len(NAMES)) / GRID
    return choose(candidates, ClassSums(NAMES, exact), counts, domain)


def test_the_oracle_is_the_reference(select, schema, open_view, candidates):
    plan = planned(chosen_by(), schema, Budget(math.inf, 1e-3))
    with open_view(plan, "reference") as view:
        artifact = select(plan).ask(view)
    records, counts = two_class_records(), dict.fromkeys(NAMES, 6)
    outsiders = [Record("Nobody knows this label.", "unheard of"), Record("Nor this.", None)]
    vectors = embed([record.text for record in [*records, *outsiders]])
    members = [record.label for record in [*records, *outsiders]]
    exact = oracle(candidates, vectors, members, counts, 0.9)
    assert exact == select(plan).made(replace(artifact, counts=counts)).rows
    assert len(exact) == 12


# The choice.


def at(*points: tuple[float, ...]) -> np.ndarray:
    return np.array(points, dtype=np.float64)


def test_the_best_of_each_label_come_first():
    points = at((1, 0.1), (1, -0.4), (1, 0.3), (1, -0.2), (1, 0.2))
    found = ClassSums(("up", "down"), at((50, 10), (50, -10)))
    chosen = choose(Candidates(list("abcde"), points), found, {"down": 2, "up": 2}, 1.0)
    assert chosen == [Record("b", "down"), Record("d", "down"), Record("c", "up"), Record("e", "up")]


def test_out_of_domain_texts_are_dropped_however_well_they_score():
    points = at((1, 0.2), (1, -0.2), (0, 1), (0, -1))
    found = ClassSums(("up", "down"), at((50, 10), (50, -10)))
    counts = {"up": 1, "down": 1}
    near, all_of_them = (choose(Candidates(list("abcd"), points), found, counts, share) for share in (0.5, 1.0))
    assert [record.text for record in near] == ["a", "b"]
    assert [record.text for record in all_of_them] == ["c", "d"]


def test_the_length_of_an_embedding_does_not_count():
    found = ClassSums(("up", "down"), at((50, 10), (50, -10)))
    points = at((1, 0.3), (100, 1), (1, -0.3), (100, -1))
    chosen = choose(Candidates(list("abcd"), points), found, {"up": 1, "down": 1}, 1.0)
    assert [record.text for record in chosen] == ["a", "c"]


def test_a_small_label_is_not_ranked_away_from_the_domain():
    """Along the domain the sums of 100 and of 10 rows differ by their sizes, which must not speak against a text."""
    points = at((1, -0.3, 0), (1, 0.3, 0), (0.3, 0, 1))
    found = ClassSums(("large", "small"), at((100, 30, 0), (10, -3, 0)))
    assert choose(Candidates(list("abc"), points), found, {"small": 1}, 1.0) == [Record("a", "small")]


SPREAD = at((1, 0.5, 0.3), (1, 0.5, -0.3), (1, -0.5, 0.3), (1, -0.5, -0.3))


def test_directions_in_which_texts_vary_anyway_count_less():
    found = ClassSums(("up", "down"), at((50, 10, 14), (50, -10, -14)))
    assert SPREAD[1] @ found.sums[0] > SPREAD[2] @ found.sums[0]
    assert [record.text for record in choose(Candidates("abcd", SPREAD), found, {"up": 2}, 1.0)] == ["a", "c"]


def test_directions_in_which_texts_hardly_vary_do_not_rule():
    """There the sums hold little but noise, which a division by the bare covariance would enlarge a thousand times."""
    faint = np.column_stack([SPREAD, [-0.001, 0.001, 0.001, -0.001]])
    found = ClassSums(("up", "down"), at((50, 10, 0, 5), (50, -10, 0, -5)))
    assert {record.text for record in choose(Candidates("abcd", faint), found, {"up": 2}, 1.0)} == {"a", "b"}


def test_no_candidates_no_choice():
    found = ClassSums(("up", "down"), at((50, 10), (50, -10)))
    assert choose(Candidates([], np.zeros((0, 2))), found, {"up": 2}, 1.0) == []


def test_ties_go_to_the_nearer_and_then_to_the_earlier():
    found = ClassSums(("up", "down"), at((50, 10, 0), (50, -10, 0)))
    tied = at((0.6, 0, 0.8), (0.6, 0, -0.8), (1, 0, 0), (0.6, 0, 0.8))
    chosen = choose(Candidates(list("abcd"), tied), found, {"up": 4}, 1.0)
    assert [record.text for record in chosen] == ["c", "a", "b", "d"]


@pytest.mark.parametrize("label", ["up", "down"])
@pytest.mark.parametrize("seed", range(4))
def test_equal_vectors_tie_wherever_they_stand(label, seed):
    """The last bits of a product of matrices depend on a row's place."""
    random = np.random.default_rng(seed)
    points, same = random.normal(size=(501, 37)), random.normal(size=37)
    points[::2] = same
    sums = np.stack([same + random.normal(size=37), same - random.normal(size=37)])
    texts = [str(number) for number in range(len(points))]
    chosen = choose(Candidates(texts, points), ClassSums(("up", "down"), sums), {label: 501}, 1.0)
    places = [int(record.text) for record in chosen]
    assert [place for place in places if place % 2 == 0] == list(range(0, 501, 2))


def test_a_text_that_is_like_two_labels_comes_after_one_that_is_like_one():
    found = ClassSums(("up", "left", "down"), at((50, 10, 0), (50, 0, 10), (50, -10, -10)))
    points = at((1, 0.5, 0.5), (1, 0.4, -0.1), (1, -0.1, 0.4), (1, -0.4, -0.4))
    chosen = choose(Candidates(list("abcd"), points), found, {"up": 1, "left": 1}, 1.0)
    assert chosen == [Record("b", "up"), Record("c", "left")]


def test_a_rare_label_unlike_the_rest_has_a_domain_of_its_own():
    found = ClassSums(("large", "other", "rare"), at((1000, 10, 0), (1000, -10, 0), (0, 0, 3)))
    points = at((1, 0.1, 0), (1, -0.1, 0), (1, 0.2, 0), (0, 0.1, 1))
    assert choose(Candidates(list("abcd"), points), found, {"rare": 2}, 0.25) == [Record("d", "rare")]


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [("left", "up", {"left": "cb", "up": "a"}), ("up", "left", {"up": "ab", "left": "c"})],
)
def test_labels_take_turns_over_texts_that_both_want(first, second, shared):
    found = ClassSums(("up", "left"), at((50, 10), (50, -10)))
    points = at((1, 0.3), (1, 0.2), (1, 0.1))
    chosen = choose(Candidates(list("abc"), points), found, {first: 2, second: 2}, 1.0)
    assert chosen == [Record(text, label) for label, own in shared.items() for text in own]


def test_equal_texts_count_as_one():
    found = ClassSums(("up", "down"), at((50, 10), (50, -10)))
    points = at((1, 0.3), (1, 0.3), (1, 0.2), (1, -0.1))
    chosen = choose(Candidates(["same", "same", "other", "low"], points), found, {"up": 3, "down": 2}, 1.0)
    assert chosen == [Record("same", "up"), Record("other", "up"), Record("low", "down")]


def test_a_label_without_a_sum_is_an_error():
    found = ClassSums(("up", "down"), at((1, 1), (1, -1)))
    with pytest.raises(ValueError, match="no sum"):
        choose(Candidates(["a"], at((1, 0))), found, {"sideways": 1}, 1.0)


@settings(deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.just(4)), elements=st.floats(width=16)),
    arrays(np.float64, (3, 4), elements=st.floats(-1e6, 1e6)),
    st.lists(st.integers(0, 6), min_size=3, max_size=3),
    st.floats(0.01, 1.0),
)
def test_counts_are_met_until_the_texts_in_domain_run_out(points, sums, wanted, share):
    texts = [str(number) for number in range(len(points))]
    counts = dict(zip("abc", wanted, strict=True))
    chosen = choose(Candidates(texts, points), ClassSums(("a", "b", "c"), sums), counts, share)
    assert len(chosen) == len({record.text for record in chosen})
    assert min(sum(wanted), math.ceil(share * len(points))) <= len(chosen) <= min(sum(wanted), len(points))
    assert all(sum(record.label == label for record in chosen) <= most for label, most in counts.items())


@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan])
def test_a_vector_that_is_no_number_has_no_direction(broken):
    assert unit_rows(np.array([[broken, 1.0], [3.0, 4.0]])).round(12).tolist() == [[0.0, 0.0], [0.6, 0.8]]


# What noisy sums say of the means.

CENTRE = np.eye(40)[0]


def clusters(rng: np.random.Generator, labels: int, records: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Public unit vectors (n, 40) of all labels, the labels' exact sums, and directions that set them apart."""
    apart = np.zeros((labels, 40))
    apart[:, 1:9] = rng.normal(0, 0.2, (labels, 8))
    public = unit_rows(CENTRE + np.repeat(apart, 100, axis=0) + 0.05 * rng.normal(size=(100 * labels, 40)))
    own = CENTRE + np.repeat(apart, records, axis=0) + 0.05 * rng.normal(size=(records * labels, 40))
    return public, unit_rows(own).reshape(labels, records, 40).sum(axis=1), apart


def angle(found: np.ndarray, exact: np.ndarray) -> float:
    """How far the differences between labels point elsewhere."""
    one, other = (unit_rows(unit_rows(each) - unit_rows(each).mean(axis=0)) for each in (found, exact))
    return float(1.0 - (one * other).sum(axis=1).mean())


@pytest.mark.parametrize("sigma", [2.0, 5.0, 10.0])
def test_noise_where_no_candidate_lies_is_taken_out(sigma):
    public, exact, _ = clusters(np.random.default_rng(0), 6, 20)
    noisy = exact + np.random.default_rng(1).normal(0, sigma, exact.shape)
    assert angle(estimate_means(ClassSums(tuple("abcdef"), noisy, sigma, 20.0), public), exact) < angle(noisy, exact)


def test_without_noise_sums_stay_as_they_are():
    public, exact, apart = clusters(np.random.default_rng(0), 6, 20)
    assert estimate_means(ClassSums(tuple("abcdef"), exact, 0.0, 20.0, unit_rows(apart)), public) is exact


def test_the_more_noise_the_more_descriptions_help():
    public, exact, apart = clusters(np.random.default_rng(0), 6, 20)
    gains = []
    for sigma in (0.2, 1.0, 5.0, 20.0):
        noisy = exact + np.random.default_rng(1).normal(0, sigma, exact.shape)
        found = ClassSums(tuple("abcdef"), noisy, sigma, 20.0)
        told = replace(found, named=unit_rows(CENTRE + apart))
        gains.append(angle(estimate_means(found, public), exact) - angle(estimate_means(told, public), exact))
    assert gains[0] > 0.0
    assert gains == sorted(gains)


def test_descriptions_that_contradict_the_rows_are_left_aside():
    public, exact, apart = clusters(np.random.default_rng(0), 6, 200)
    noisy = exact + np.random.default_rng(1).normal(0, 5.0, exact.shape)
    found = ClassSums(tuple("abcdef"), noisy, 5.0, 200.0)
    wrong = replace(found, named=unit_rows(CENTRE - apart))
    assert estimate_means(wrong, public) == pytest.approx(
        estimate_means(replace(found, named=np.ones((6, 40))), public), abs=1e-12
    )
