"""What is said of all releases together holds whenever somebody stops: every rule for stopping, by backward induction.

An owner asks Gaussian queries, and after each answer chooses how sharp the next one is, or stops and publishes. All
that matters of the answers is the privacy loss so far. So the best rule follows from the last moment to the first.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import dp_accounting as dpa
import numpy as np
import pytest
from scipy.signal import fftconvolve

from palimpsest.errors import LedgerError
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Balance, Cap, Run, milestone_problem
from palimpsest.privacy.ledger.total import Total, margin, milestone, propose_milestones, total_of
from palimpsest.privacy.planned import PlannedQuery

STEP, LOOKS = 0.01, 200  # of the grid of losses; moments at which somebody may stop
Stated = Callable[[float], float]  # the epsilon that is said where the filter stands there; infinity says nothing


def asset(milestones: Sequence[float] = (), delta: float = 1e-5, cap: float = 10.0) -> Asset:
    return Asset("notes", delta, cap, 1000, filter="gdp", milestones=tuple(milestones))


def excess(known: Asset, stated: Stated, most: float, sizes: Sequence[int] = (1,)) -> float:
    """The most that any owner can make of the expected part of the probability that what is said does not cover.

    Args:
        most: the epsilon at whose mu, in squares, the last of the moments lies.
        sizes: how many of the equal parts of that a query may take; the owner chooses each time.
    """
    part = accounting.gdp_sigma(most, known.filter_delta) ** -2 / LOOKS
    reach = part * LOOKS / 2 + 7 * math.sqrt(part * LOOKS)
    losses = STEP * np.arange(-int(reach / STEP), int(reach / STEP) + 1)
    values: list[np.ndarray] = []  # by how many parts are left
    for left in range(LOOKS + 1):
        epsilon = stated(known.spent(((LOOKS - left) * part,)))
        stops = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))
        goes_on = (_next(values[left - size], size * part) for size in sizes if size <= left)
        values.append(np.maximum.reduce([stops, *goes_on]))
    return float(np.interp(0.0, losses, values[-1]))


def _next(value: np.ndarray, squares: float) -> np.ndarray:
    """The mean of a value of the loss after one more query: its loss is normal, of mean mu^2 / 2 and variance mu^2."""
    half = int((8 * math.sqrt(squares) + squares) / STEP) + 1
    at = STEP * np.arange(-half, half + 1)
    weights = np.exp(-((at - squares / 2) ** 2) / (2 * squares))
    return fftconvolve(np.pad(value, half, mode="edge"), weights[::-1] / weights.sum(), "valid")


def by_milestones(known: Asset) -> Stated:
    return lambda spent: milestone(known, spent) or math.inf


@pytest.mark.parametrize("milestones", [(1.0,), (1.0, 3.0), (1.0, 3.0, 6.0), (0.25, 0.3, 0.35)])
@pytest.mark.parametrize("sizes", [(1,), (1, 7, 40)], ids=["equal", "unequal"])
def test_no_rule_for_stopping_leaves_more_than_delta_uncovered(
    milestones: tuple[float, ...], sizes: tuple[int, ...]
) -> None:
    known = asset(milestones)
    found = excess(known, by_milestones(known), milestones[-1], sizes)
    assert 0.5 * known.filter_delta < found <= known.filter_delta


def test_the_cap_covers_all_that_is_ever_released() -> None:
    known = asset(cap=3.0)
    found = excess(known, lambda spent: known.epsilon if spent <= known.epsilon * (1 + 1e-6) else math.inf, 3.0)
    assert found == pytest.approx(known.filter_delta, rel=0.01)


def test_where_the_filter_stands_covers_far_less() -> None:
    assert excess(asset(), lambda spent: spent, 3.0) > 5 * asset().delta


def test_milestones_that_each_had_all_of_delta_would_not_hold() -> None:
    known = asset((1.0, 3.0))
    found = excess(known, lambda spent: next((one for one in known.milestones if spent <= one), math.inf), 3.0)
    assert found > 1.5 * known.delta


@pytest.mark.parametrize(("milestones", "most"), [((1.0, 3.0), 1.05), ((1.0, 3.0, 6.0), 1.08)])
def test_milestones_cost_little_beside_a_total_that_was_planned(milestones: tuple[float, ...], most: float) -> None:
    """At the last moment before a milestone is passed, beside the epsilon at all of delta of one composition."""
    known = asset(milestones)
    for epsilon in milestones:
        passed_at = epsilon / margin(milestones, known.filter_delta)
        mu = 1.0 / accounting.gdp_sigma(passed_at, known.filter_delta)
        assert epsilon <= most * accounting.gdp_epsilon(mu, known.delta)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize("milestones", [(), (2.0,), (0.01, 5.0), (1.0, 1.01, 1.02), (0.5, 3.0, 1000.0)])
def test_the_parts_of_delta_add_up_to_no_more(milestones: tuple[float, ...], delta: float) -> None:
    factor = margin(milestones, delta)
    mus = [1.0 / accounting.gdp_sigma(epsilon / factor, delta) for epsilon in milestones]
    shares = [accounting.gdp_delta(mu, epsilon) for mu, epsilon in zip(mus, milestones, strict=True)]
    assert sum(shares) <= delta
    assert not milestones or sum(shares) >= 0.999 * delta


def stated(known: Asset, stands_at: float, *caps: float, beside: float = 0.0) -> Total:
    balance = Balance((0.0,), stands_at, known.epsilon, beside, known.beside_delta)
    return total_of(known, balance, [Cap(cap, "") for cap in caps])


def test_a_total_is_said_by_what_is_proved_of_it() -> None:
    known = stated(asset((1.0, 3.0)), 2.5, 10.0)
    assert (known.epsilon, known.status) == (3.0, "proved")
    assert "epsilon 3 at delta 1e-05, a milestone that they have not passed" in known.sentence
    assert "epsilon 10 at delta 1e-05, the cap. The filter stands at 2.500, which is no bound." in known.sentence
    passed = stated(asset((1.0, 3.0)), 2.99, 10.0)
    assert (passed.epsilon, passed.milestone) == (10.0, None), "less than a milestone, and yet past it"
    assert stated(asset(), 0.0).epsilon == 10.0
    renyi = stated(Asset("notes", 1e-5, 10.0, 1000), 2.5, 10.0)
    assert renyi.epsilon == 2.5
    assert renyi.sentence == "All releases together: epsilon 2.500 at delta 1e-05, whenever one looks."


def test_a_cap_that_was_raised_is_no_proof_and_one_that_was_lowered_bounds_nothing_new() -> None:
    raised = stated(asset(cap=12.0), 2.5, 10.0, 12.0)
    assert (raised.epsilon, raised.status) == (12.0, "assumed")
    assert "That cap was raised" in raised.sentence
    lowered = stated(asset(cap=3.0), 2.5, 10.0, 3.0)
    assert (lowered.epsilon, lowered.status) == (10.0, "proved"), "it may have been lowered to what was seen"
    assert stated(asset((3.0,), cap=12.0), 2.5, 10.0, 12.0).status == "proved"


@pytest.mark.parametrize("counted", ["gdp", "renyi"])
def test_nothing_is_proved_where_charges_went_beyond_what_is_covered(counted: str) -> None:
    """A version that was withdrawn counts at its cost, be it above the cap."""
    above = stated(replace(asset(), filter=counted), 10.5, 10.0)
    assert (above.epsilon, above.status) == ((10.5, "proved") if counted == "renyi" else (math.inf, "not covered"))
    beside = stated(replace(asset(), filter=counted), 2.5, 10.0, beside=6e-6)
    assert (beside.epsilon, beside.status) == (math.inf, "not covered")
    assert "no epsilon is proved" in beside.sentence


@pytest.mark.parametrize(
    "milestones", [(3.0, 1.0), (1.0, 1.0), (0.0,), (-1.0,), (1.0, 2.0, 3.0, 4.0), (math.inf,), (math.nan,), (10.0,)]
)
def test_milestones_ascend_below_the_cap(milestones: tuple[float, ...], tmp_path: Path) -> None:
    assert milestone_problem(milestones, "gdp", 10.0)
    with pytest.raises((LedgerError, ValueError), match="epsilons below the cap"):
        Ledger.create(f"sqlite:///{tmp_path / 'ledger.sqlite'}").register(asset(milestones))


def test_a_total_by_divergences_has_none() -> None:
    assert "with renyi the total is proved where it stands" in str(milestone_problem((1.0,), "renyi"))


@pytest.mark.parametrize(
    ("first", "cap", "found"),
    [(3.08, 10.0, (3.2, 5.7)), (1.0, 10.0, (1.1, 3.4)), (8.0, 10.0, (8.1,)), (9.95, 10.0, ()), (12.0, 10.0, ())],
)
def test_what_is_proposed_is_not_passed_by_the_first_plan(first: float, cap: float, found: tuple[float, ...]) -> None:
    assert propose_milestones(first, asset(cap=cap)) == found
    assert not found or milestone(asset(found, cap=cap), first) == found[0]


def charged(ledger: Ledger, name: str, sigma: float) -> None:
    held = ledger.reserve(
        name, Run("select", "s", "release", "rows", name), [PlannedQuery("v", dpa.GaussianDpEvent(sigma))]
    )
    (charge,) = held.charges
    ledger.begin(charge)


@pytest.mark.parametrize("early", [False, True])
def test_milestones_that_were_registered_after_an_answer_count_for_nothing(early: bool, tmp_path: Path) -> None:
    """Under a second name for rows that were asked already, a milestone may have been chosen by what was answered."""
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    ledger.register(Asset("first", 1e-5, 10.0, 1000, filter="gdp"))
    if early:
        ledger.register(asset((1.0, 3.0)))
    charged(ledger, "first", 5.0)
    ledger.register(asset((1.0, 3.0)))
    for name in ("first", "notes"):
        ledger.allow_same_rows(name, "the same file", likeness="rows")
    assert ledger.books().total("notes").stands_at > 0
    assert ledger.books().milestones("notes") == ((1.0, 3.0) if early else ())
    assert ledger.books().total("notes").epsilon == (1.0 if early else 10.0)


def test_a_reference_is_an_answer_too(tmp_path: Path) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    ledger.register(Asset("first", 1e-5, 10.0, 1000, filter="gdp"))
    query = PlannedQuery("votes", dpa.NonPrivateDpEvent())
    (charge,) = ledger.reserve("first", Run("select", "inf", "reference", "rows", "plan"), [query]).charges
    ledger.begin(charge)
    ledger.register(asset((1.0, 3.0)))
    for name in ("first", "notes"):
        ledger.allow_same_rows(name, "the same file", likeness="rows")
    assert ledger.books().milestones("notes") == ()


def test_what_is_stated_is_shown_with_all_of_its_digits() -> None:
    assert "epsilon 3.0000004 at delta" in stated(asset((3.0000004,)), 2.5, 10.0).sentence


def test_milestones_never_change(tmp_path: Path) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    ledger.register(asset((1.0, 3.0)))
    assert ledger.register(asset((1.0, 3.0))).milestones == (1.0, 3.0)
    query = PlannedQuery("votes", dpa.GaussianDpEvent(9.0))
    ledger.reserve("notes", Run("select", "a", "release", "rows", "plan"), [query])
    with pytest.raises(LedgerError, match=r"milestones \(1.0, 3.0\), not \(2.0,\)"):
        ledger.register(asset((2.0,)))
    ledger.amend("notes", 0.5)
    assert ledger.books().asset("notes").milestones == (1.0, 3.0)
