"""Covers of charges by Gaussians: they hold at every epsilon, cost little, and add up against whoever adapts."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import dp_accounting as dpa
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.privacy import accounting
from palimpsest.privacy.events import BoundedRangeDpEvent, DiscreteGaussianDpEvent
from palimpsest.privacy.gaussian_share import Share, bounds, cover_charge, least_mu, tightest_profile
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.reader import judge_charge
from palimpsest.privacy.ledger.records import Asset, Balance, Charge, Run
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.planned import PlannedQuery

DELTA = 1e-5
ASSET = Asset("tickets", DELTA, 10.0, 1000, filter="gdp")
EPSILONS = np.linspace(0.0, 12.0, 4001)


def step(noise: float, rate: float) -> dpa.DpEvent:
    return dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise))


# --- profiles in closed form, each order of neighbours apart


def laplace(scale: float, at: float) -> float:
    return max(0.0, 1.0 - math.exp((at - 1.0 / scale) / 2.0))


def subsampled(noise: float, rate: float, at: float) -> float:
    """One step: the larger of N(0, s^2) against its mixture with N(1, s^2), and of the mixture against it."""

    def tail(threshold: float) -> tuple[float, float]:
        """Of both laws above a threshold."""
        base = scipy.special.ndtr(-threshold / noise)
        return base, (1 - rate) * base + rate * scipy.special.ndtr((1 - threshold) / noise)

    def ratio_at(value: float) -> float:
        """Where the mixture is `value` times the base."""
        return noise**2 * math.log((value - 1 + rate) / rate) + 0.5 if value > 1 - rate else -math.inf

    base, mixed = tail(ratio_at(math.exp(at)))
    removed = mixed - math.exp(at) * base
    base, mixed = (1 - mass for mass in tail(ratio_at(math.exp(-at))))
    return max(removed, base - math.exp(at) * mixed, 0.0)


def whole_numbers(sigma: float, at: float) -> float:
    support = np.arange(-400, 401)
    law = np.exp(-(support**2) / (2 * sigma**2))
    moved = np.exp(-((support - 1) ** 2) / (2 * sigma**2))
    return float(np.maximum(law / law.sum() - math.exp(at) * moved / moved.sum(), 0).sum())


def gaussian(sigma: float, at: float) -> float:
    return accounting.gdp_delta(1 / sigma, at)


def chosen(moves: list[float], at: float) -> float:
    """A draw in proportion to exp(score) among equal scores, which the neighbour's row moves so."""
    weights = np.exp(moves)
    before, after = np.full(len(moves), 1 / len(moves)), weights / weights.sum()
    ways = ((before, after), (after, before))
    return max(float(np.maximum(one - math.exp(at) * other, 0).sum()) for one, other in ways)


PROFILES = {
    "laplace": (dpa.LaplaceDpEvent(2.0), functools.partial(laplace, 2.0)),
    "one step": (step(0.7, 0.05), functools.partial(subsampled, 0.7, 0.05)),
    "one step at a high rate": (step(1.5, 0.6), functools.partial(subsampled, 1.5, 0.6)),
    "whole numbers": (DiscreteGaussianDpEvent(1.3), functools.partial(whole_numbers, 1.3)),
    "zcdp, held against a Gaussian of its rho": (dpa.ZCDpEvent(0.3), functools.partial(gaussian, math.sqrt(1 / 0.6))),
    "one choice": (BoundedRangeDpEvent(1.2), functools.partial(chosen, [0.6, -0.6, -0.6, -0.6])),
    "mixed": (dpa.ComposedDpEvent([dpa.ZCDpEvent(0.3), dpa.LaplaceDpEvent(1e6)]), functools.partial(gaussian, 1.2910)),
}


@pytest.mark.parametrize("own_delta", [0.0, 3e-4])
@pytest.mark.parametrize("beside", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("name", PROFILES)
def test_a_cover_holds_at_every_epsilon(name, beside, own_delta):
    event, profile = PROFILES[name]
    share = cover_charge(event, own_delta, beside)
    covered = share.beside + (1 - share.beside) * accounting.gdp_deltas(np.full(len(EPSILONS), share.mu), EPSILONS)
    assert share.beside == own_delta + beside
    assert all(own_delta + profile(at) <= most for at, most in zip(EPSILONS, covered, strict=True))


@pytest.mark.parametrize(("event", "accountant"), [
    (dpa.ZCDpEvent(0.3), "zcdp"), (dpa.GaussianDpEvent(1 / math.sqrt(0.6)), "rdp"),
    (dpa.GaussianDpEvent(1 / math.sqrt(0.6)), "pld"),
])  # fmt: skip
def test_each_accountant_bounds_the_exact_profile_from_above(event, accountant):
    exact = [gaussian(1 / math.sqrt(0.6), at) for at in EPSILONS]
    assert np.all(bounds(event, accountant)(EPSILONS) >= np.array(exact) - 1e-12)


@functools.cache
def worst_choices(eta: float, target: float, left: int, shifts: int) -> float:
    """The greatest delta at `target` of adaptive choices of range eta, whose intervals lie anew after each answer."""
    if not left:
        return max(0.0, -math.expm1(target))
    found = 0.0
    for shift in np.linspace(0.0, eta, shifts)[1:-1]:
        first = (1 - math.exp(shift - eta)) / -math.expm1(-eta)  # says the larger loss with this probability
        told = (first * worst_choices(eta, round(target - shift, 9), left - 1, shifts),
                (1 - first) * worst_choices(eta, round(target - shift + eta, 9), left - 1, shifts))  # fmt: skip
        found = max(found, sum(told))
    return found


@pytest.mark.parametrize("eta", [0.4, 1.5])
@pytest.mark.parametrize("target", [0.0, 0.4, 1.0])
def test_choices_that_adapt_stay_within_their_losses(eta, target):
    """All strategies of three choices, by dynamic programming over where the intervals lie."""
    event = dpa.SelfComposedDpEvent(BoundedRangeDpEvent(eta), 3)
    claimed = float(bounds(event, "pld")(np.array([target]))[0])
    assert worst_choices(eta, target, 3, 9) <= claimed <= 1.6 * worst_choices(eta, target, 3, 9) + 1e-3


def test_many_choices_are_covered_by_the_tighter_of_both_bounds_at_each_epsilon():
    event = dpa.SelfComposedDpEvent(BoundedRangeDpEvent(math.sqrt(8 * 0.15 / 100)), 100)
    at = np.linspace(0.0, 4.0, 101)
    by_rho, by_losses = (bounds(event, accountant)(at) for accountant in ("zcdp", "pld"))
    assert np.array_equal(tightest_profile(event)(at), np.minimum(by_rho, by_losses))
    assert by_losses[0] < by_rho[0]
    assert by_rho[-1] < by_losses[-1]
    assert cover_charge(event, 0.0, 1e-6).mu < 0.9 * cover_charge(dpa.ZCDpEvent(0.15), 0.0, 1e-6).mu


def test_a_gaussian_covers_itself_and_takes_no_delta():
    event = dpa.ComposedDpEvent([dpa.GaussianDpEvent(2.0), dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(4.0), 12)])
    assert cover_charge(event, 0.0, 1e-6) == pytest.approx((1.0, 0.0))
    assert cover_charge(event, 1e-7, 1e-6).beside == 1e-7 + 1e-6


def test_what_no_gaussian_covers_takes_all():
    assert cover_charge(dpa.LaplaceDpEvent(1.0), 0.0, 0.0) == (math.inf, 0.0)
    assert cover_charge(dpa.NonPrivateDpEvent(), 0.0, 1e-6).mu == math.inf
    assert cover_charge(dpa.ZCDpEvent(1e9), 0.0, 1e-6).mu == math.inf


@given(st.floats(0.05, 0.6), st.floats(0.1, 3.0))
def test_it_holds_up_to_the_very_end_of_a_step(height, end):
    """A profile that is level and then falls to nothing is the hardest between the points of a grid."""
    mu = least_mu(lambda at: np.where(at < end, height, 0.0), 0.0, 1e-6)
    assert 1e-6 + (1 - 1e-6) * accounting.gdp_delta(mu, math.nextafter(end, 0.0)) >= height
    assert accounting.gdp_delta(mu, end) == pytest.approx(height, rel=1e-2)


@pytest.mark.parametrize(("rate", "steps", "target"), [(0.01, 1000, 3.0), (0.01, 1000, 1.0), (0.05, 300, 8.0)])
def test_training_takes_little_more_than_it_costs_alone(rate, steps, target):
    def training(noise: float) -> dpa.DpEvent:
        return dpa.SelfComposedDpEvent(step(noise, rate), steps)

    query = PlannedQuery("steps", training(accounting.calibrate_noise(training, target, DELTA)))
    assert preview(ASSET, [], {("run", 1): [query]}).spent <= 1.05 * target


@pytest.mark.parametrize("target", [0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("count", [1, 7])
def test_gaussian_histories_take_what_they_cost_together(target, count):
    query = PlannedQuery("votes", dpa.GaussianDpEvent(accounting.gdp_sigma(target, DELTA, rounds=count)))
    wanted = {(f"run {number}", 1): [query] for number in range(count)}
    assert target <= preview(ASSET, [], wanted).spent <= 1.01 * target


# --- whoever adapts: every strategy, by dynamic programming


def best_attack(asset: Asset, strengths: tuple[float, ...], telling: float, most: int, taken: Callable) -> float:
    """The greatest P(E) - e^epsilon Q(E) over all events and all strategies that the filter lets through.

    A strategy asks randomized responses, whose strengths are whole multiples of the first, or a mechanism that tells
    the data set with probability `telling`; by what it has seen it chooses the next, or stops.
    """
    unit = strengths[0]
    costs = [taken(strength) for strength in strengths]

    @functools.cache
    def fits(squares: float, told: int) -> bool:
        used = (squares,)
        return Balance(used, asset.spent(used), asset.epsilon, told * telling, asset.beside_delta).fits

    @functools.cache
    def value(loss: int, squares: float, told: int, left: int) -> float:
        """Over the present probability on the neighbour, at a loss of so many units."""
        found = max(0.0, math.exp(loss * unit) - math.exp(asset.epsilon))
        if not left:
            return found
        for strength, cost in zip(strengths, costs, strict=True):
            if fits(after := round(squares + cost, 9), told):
                true, jump = 1 / (1 + math.exp(-strength)), round(strength / unit)
                answers = (1 - true) * value(loss + jump, after, told, left - 1)
                found = max(found, answers + true * value(loss - jump, after, told, left - 1))
        if fits(squares, told + 1):
            hidden = value(loss, squares, told + 1, left - 1)
            found = max(found, telling * math.exp(loss * unit) + (1 - telling) * hidden)
        return found

    return value(0, 0.0, 0, most)


def cover_of(strength: float) -> float:
    """mu of the least Gaussian that covers a randomized response: both profiles have one slope at epsilon 0."""
    return float(-2 * scipy.special.ndtri(1 / (1 + math.exp(strength))))


@pytest.mark.parametrize("cap", [0.5, 1.5])
@pytest.mark.parametrize("delta", [0.2, 0.02])
def test_no_strategy_passes_the_cap(cap, delta):
    asset = replace(ASSET, delta=delta, epsilon=cap)
    attack = functools.partial(best_attack, asset, (0.2, 0.4, 0.8), asset.beside_delta, 14)
    assert attack(lambda strength: cover_of(strength) ** 2) <= delta
    assert attack(lambda strength: cover_of(strength) ** 2 / 4) > delta  # a cover half as wide is caught


# --- on a ledger


QUERIES = {
    "votes": PlannedQuery("votes", DiscreteGaussianDpEvent(9.0)),
    "means": PlannedQuery("means", dpa.GaussianDpEvent(8.0)),
    "picks": PlannedQuery("picks", dpa.ZCDpEvent(0.01), own_delta=2e-8),
}


@pytest.fixture
def gaussian_ledger(url: str) -> Ledger:
    made = Ledger.create(url)
    made.register(ASSET)
    return made


def run(variant: str, purpose: str = "release") -> Run:
    return Run("fit", variant, purpose, "f", "p")


def reserve(ledger: Ledger, variant: str, *names: str) -> list[Charge]:
    return list(ledger.reserve("tickets", run(variant), [QUERIES[name] for name in names]).charges)


def test_a_share_is_written_with_its_reservation_and_takes_half_of_what_is_left(gaussian_ledger):
    votes, means = reserve(gaussian_ledger, "a", "votes", "means")
    (again,) = reserve(gaussian_ledger, "b", "votes")
    most = ASSET.beside_delta
    assert [one.share.beside for one in (votes, means, again)] == pytest.approx([most / 2, 0.0, most / 4])
    assert means.share.mu == 1 / 8
    assert [one.share for one in gaussian_ledger.charges("tickets")] == [votes.share, means.share, again.share]
    squares = sum(one.share.mu**2 for one in (votes, means, again))
    balance = gaussian_ledger.balance("tickets")
    assert balance.spent == pytest.approx(accounting.gdp_epsilon(math.sqrt(squares), ASSET.filter_delta))
    assert balance.beside == pytest.approx(most * 3 / 4)


def test_what_is_planned_is_what_is_taken(gaussian_ledger):
    wanted = {(run("a").key, 1): [QUERIES["votes"], QUERIES["picks"]]}
    planned = preview(ASSET, [], wanted)
    reserve(gaussian_ledger, "a", "votes", "picks")
    assert gaussian_ledger.balance("tickets") == planned


def test_a_retry_keeps_its_share_and_a_refund_gives_it_back(gaussian_ledger):
    first = reserve(gaussian_ledger, "a", "votes")
    assert reserve(gaussian_ledger, "a", "votes") == first
    gaussian_ledger.refund(first)
    balance = gaussian_ledger.balance("tickets")
    assert (balance.spent, balance.beside) == (0.0, 0.0)
    assert reserve(gaussian_ledger, "b", "votes")[0].share == first[0].share


def test_a_delta_of_a_query_s_own_stays_beside_its_cover(gaussian_ledger):
    (picks,) = reserve(gaussian_ledger, "a", "picks")
    assert picks.share.beside == pytest.approx(2e-8 + (ASSET.beside_delta - 2e-8) / 2)
    most = replace(QUERIES["picks"], own_delta=ASSET.beside_delta)
    with pytest.raises(BudgetExceeded, match="outside the events"):
        gaussian_ledger.reserve("tickets", run("b"), [most])


def test_cells_of_one_scheme_take_what_the_dearest_takes(gaussian_ledger):
    def of(cells: str) -> list[PlannedQuery]:
        return [replace(QUERIES["votes"], partition=("batch", cell)) for cell in cells]

    def taken(variant: str, queries: list[PlannedQuery]) -> tuple[float, float]:
        before = gaussian_ledger.balance("tickets")
        gaussian_ledger.reserve("tickets", run(variant), queries)
        after = gaussian_ledger.balance("tickets")
        return after.used[0] - sum(before.used), after.beside - before.beside

    one, four, twice = taken("a", of("0")), taken("b", of("0123")), taken("c", of("001"))
    assert four[1] == pytest.approx(one[1] / 2)
    assert four[0] == pytest.approx(one[0], rel=0.05)
    assert twice[0] == pytest.approx(2 * one[0], rel=0.1)


def test_a_budget_is_never_passed(gaussian_ledger):
    query = PlannedQuery("query", dpa.GaussianDpEvent(1.5))
    most = 1
    while accounting.gdp_epsilon(math.sqrt(most + 1) / 1.5, ASSET.filter_delta) <= ASSET.epsilon:
        most += 1
    for number in range(most):
        gaussian_ledger.reserve("tickets", run(f"v{number}"), [query])
    with pytest.raises(BudgetExceeded, match="would pass the budget"):
        gaussian_ledger.reserve("tickets", run("more"), [query])


def test_a_reference_takes_nothing(gaussian_ledger):
    gaussian_ledger.reserve("tickets", run("ref", "reference"), [PlannedQuery("steps", dpa.NonPrivateDpEvent())])
    assert gaussian_ledger.balance("tickets").spent == 0.0


def test_the_filter_is_fixed_at_registration(gaussian_ledger):
    """From the first reservation on."""
    gaussian_ledger.reserve("tickets", run("any"), [PlannedQuery("query", dpa.GaussianDpEvent(9.0))])
    with pytest.raises(LedgerError, match="filter gdp, not renyi"):
        gaussian_ledger.register(replace(ASSET, filter="renyi"))
    with pytest.raises(ValueError, match="filter"):
        replace(ASSET, filter="other")


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(QUERIES)), st.floats(0.5, 0.999))
def test_a_share_that_does_not_cover_its_event_is_found(name, part):
    query = QUERIES[name]
    share = cover_charge(query.event, query.own_delta, 1e-7)
    charge = Charge(
        id="c", seq=1, run_key="k", run=1, index=0, stage="fit", variant="v", purpose="release", fingerprint="f",
        query=name, event=query.event, own_delta=query.own_delta, partition=None, state="committed", time="",
        share=share,
    )  # fmt: skip
    less = replace(charge, share=Share(share.mu * part, share.beside))
    assert judge_charge(ASSET, charge) == (charge, None)
    counted, what = judge_charge(ASSET, less)
    assert what is not None
    assert counted.share is not None
    assert counted.share.mu >= share.mu * (1 - 1e-6)
    none, what = judge_charge(ASSET, replace(charge, share=None))
    assert what is not None
    assert none.share is not None
    assert none.share.mu == math.inf
    assert judge_charge(replace(ASSET, filter="renyi"), less) == (less, None)
    assert preview(ASSET, [replace(charge, share=None)], {}).spent == math.inf
