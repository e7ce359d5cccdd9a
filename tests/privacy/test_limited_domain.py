"""Picks with a bottom: the exact law of every outcome, compared with and without one vote (tier T0), and the sampler.

The law comes from `scored`, the mechanism's own deterministic part, by peeling exponential mechanisms; each fault
planted at the end must be seen by one of the checks.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from palimpsest.privacy import accounting, limited_domain
from palimpsest.privacy.events import from_json, gumbel_scale, to_json
from palimpsest.privacy.limited_domain import LimitedDomain, delta_for, gap

RARE = 1e-6
ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0, 64.0)
BELOW = math.exp(0.01)  # ln(1 / delta) a little below a whole number of scales, so that rounding up gives nothing away
SETTINGS = [  # domain, picks, scale, delta
    (1, 1, 1.0, BELOW * math.exp(-3.0)),
    (2, 1, 0.5, BELOW**2 * math.exp(-4.0)),
    (2, 2, 1.0, BELOW * math.exp(-2.0)),
    (3, 2, 2.0, BELOW**0.5 * math.exp(-1.5)),
    (3, 3, 1.0, BELOW * math.exp(-4.0)),
    (5, 2, 1.0, BELOW * math.exp(-2.0)),
]
HISTOGRAMS = [counts for bins in (2, 3, 4) for counts in itertools.product((0, 1, 2, 4), repeat=bins)]

Law = dict[tuple[int, ...], float]


@cache
def peeled(scores: tuple[int, ...], picks: int, scale: float) -> Law:
    """Ordered picks among scores, the last of which is the bottom's and ends them, and the probability of each."""
    bottom = len(scores) - 1
    logits = np.array(scores) / scale
    chances = np.exp(logits - np.logaddexp.reduce(logits)).tolist()
    law: Law = {(): chances[bottom]}
    for first in range(bottom):
        rest = [place for place in range(len(scores)) if place != first]
        after = peeled(tuple(scores[place] for place in rest), picks - 1, scale) if picks > 1 else {(): 1.0}
        for then, chance in after.items():
            law[first, *(rest[place] for place in then)] = chances[first] * chance
    return law


def law_of(mechanism: LimitedDomain, counts: Sequence[int]) -> Law:
    """The probability of every list that `pick` may return, to double precision."""
    leading, scores = mechanism.score_bins(counts)
    law = peeled(tuple(scores), mechanism.picks, mechanism.scale)
    return {tuple(leading[place] for place in picked): chance for picked, chance in law.items()}


def raised(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every histogram with one vote more."""
    for index in range(len(counts)):
        yield tuple(count + (place == index) for place, count in enumerate(counts))


def hockey_stick(one: Law, two: Law, epsilon: float) -> float:
    """The least delta at which `one` is within e^epsilon of `two`."""
    return sum(max(0.0, chance - math.exp(epsilon) * two.get(picked, 0.0)) for picked, chance in one.items())


def renyi(one: Law, two: Law, order: float) -> float:
    assert one.keys() <= two.keys()
    terms = [order * math.log(chance) + (1.0 - order) * math.log(two[picked]) for picked, chance in one.items()]
    return float(np.logaddexp.reduce(terms)) / (order - 1.0)


def renamed(law: Law, old: set[int], new: set[int]) -> Law:
    """P': the outcomes of `law`, with the bin that can be picked on this side alone called as on the other."""
    names = dict(zip(sorted(old), sorted(new), strict=True))
    return {tuple(names.get(index, index) for index in picked): chance for picked, chance in law.items()}


def apart(one: Law, two: Law) -> float:
    """Total variation."""
    return sum(abs(one.get(picked, 0.0) - two.get(picked, 0.0)) for picked in one.keys() | two.keys()) / 2.0


def pairs() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All neighbours, both ways."""
    for counts in HISTOGRAMS:
        for other in raised(counts):
            yield counts, other
            yield other, counts


# --- what must hold; each planted fault must break one of these


def check_one_vote_is_within_epsilon_and_delta(make: type[LimitedDomain]) -> None:
    """Pure peeling costs 1 / b for each pick, and the bottom leaves no more than delta beside."""
    for setting in SETTINGS:
        mechanism = make(*setting)
        epsilon = math.sqrt(8.0 * mechanism.picks * accounting.total_rho(mechanism.event()))
        for one, two in pairs():
            assert hockey_stick(law_of(mechanism, one), law_of(mechanism, two), epsilon) <= mechanism.own_delta + 1e-12


def check_one_vote_is_within_rho_of_what_is_delta_away(make: type[LimitedDomain]) -> None:
    """The statement that composes: P' is within delta of P, and its divergence from Q is within rho a at each a."""
    for setting in SETTINGS:
        mechanism = make(*setting)
        rho = accounting.total_rho(mechanism.event())
        for one, two in pairs():
            p, q = law_of(mechanism, one), law_of(mechanism, two)
            mine, others = set(mechanism.score_bins(one)[0]), set(mechanism.score_bins(two)[0])
            assert len(mine - others) <= 1
            between = renamed(p, mine - others, others - mine)
            assert apart(p, between) <= mechanism.own_delta
            assert max(renyi(between, q, order) / order for order in ORDERS) <= rho + 1e-12


def check_two_calls_are_within_what_is_charged(make: type[LimitedDomain]) -> None:
    """Two calls, exactly: rho and the deltas add up, and the deltas do not grow by e^epsilon."""
    for setting in SETTINGS[2:4]:
        mechanism = make(*setting)
        rho = 2.0 * accounting.total_rho(mechanism.event())
        for one, two in (((2, 2, 2, 1), (2, 2, 3, 1)), ((1, 1, 0), (1, 1, 1)), ((4, 2, 2, 2), (4, 2, 2, 3))):
            for before, after in ((one, two), (two, one)):
                p, q = (law_of(mechanism, counts) for counts in (before, after))
                twice = [{(a, b): law[a] * law[b] for a in law for b in law} for law in (p, q)]
                for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
                    allowed = accounting.zcdp_delta(rho, epsilon) + 2.0 * mechanism.own_delta
                    assert hockey_stick(*twice, epsilon) <= allowed


def check_the_sampler_follows_the_law(make: type[LimitedDomain]) -> None:
    """A chi-square over the whole lists that come out, rare ones together; false alarm one in a million."""
    for setting, counts in (((3, 2, 1.5, 0.3), (2, 5, 4, 1, 4)), ((2, 2, 1.0, 0.2), (1, 3))):
        mechanism, size = make(*setting), 4000
        law = law_of(LimitedDomain(*setting), counts)
        drawn = [tuple(mechanism.pick(counts)) for _ in range(size)]
        assert set(drawn) <= set(law)
        seen = np.array([drawn.count(picked) for picked in law])
        wanted = np.array(list(law.values())) * size
        rare = wanted < 5.0
        seen, wanted = (np.append(each[~rare], each[rare].sum() + 1e-9) for each in (seen, wanted))
        assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > RARE


CHECKS = [
    check_one_vote_is_within_epsilon_and_delta,
    check_one_vote_is_within_rho_of_what_is_delta_away,
    check_two_calls_are_within_what_is_charged,
    check_the_sampler_follows_the_law,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_holds(check):
    check(LimitedDomain)


def test_laws_are_laws():
    mechanism = LimitedDomain(3, 3, 1.0, 0.1)
    for counts in HISTOGRAMS:
        assert sum(law_of(mechanism, counts).values()) == pytest.approx(1.0, abs=1e-12)


def test_delta_is_used_up_where_rounding_up_gives_nothing_away():
    """The bound is not loose: the worst pair takes more than nine tenths of it."""
    for setting in SETTINGS[:1]:
        mechanism = LimitedDomain(*setting)
        epsilon = mechanism.picks / mechanism.scale
        worst = max(hockey_stick(law_of(mechanism, a), law_of(mechanism, b), epsilon) for a, b in pairs())
        assert 0.9 * mechanism.delta < worst <= mechanism.delta


# --- what it is


def test_leading_bins_are_in_order_and_ties_go_to_the_lower_index():
    leading, scores = LimitedDomain(3, 1, 1.0, math.exp(-2.5)).score_bins([1, 7, 4, 4, 4, 0])
    assert leading == [1, 2, 3]
    assert scores == [7, 4, 4, 4 + math.ceil(1.0 + 2.5)]


@pytest.mark.parametrize("counts", [[], [3], [0, 2]])
def test_where_there_are_no_more_bins_the_next_one_has_no_votes(counts):
    mechanism = LimitedDomain(2, 2, 1.0, math.exp(-2.5))
    leading, scores = mechanism.score_bins(counts)
    assert sorted(leading) == list(range(len(counts)))
    assert scores[-1] == mechanism.offset == 4
    assert set(mechanism.pick(counts)) <= set(leading)


def test_few_bins_far_ahead_come_out_and_equal_ones_do_not():
    mechanism = LimitedDomain(4, 3, 1.0, 1e-6)
    counts = [900, 5, 1000, 5, 5, 5, 5, 5]
    assert all(mechanism.pick(counts) == [2, 0] for _ in range(50))
    assert all(mechanism.pick([10] * 8) == [] for _ in range(50))


def test_as_many_come_out_as_asked_where_all_are_far_ahead():
    mechanism = LimitedDomain(4, 2, 1.0, 1e-6)
    assert {len(mechanism.pick([900, 1000, 950, 990, 1])) for _ in range(50)} == {2}


def test_without_noise_the_largest_come_out_in_order():
    exact = LimitedDomain(4, 3, 0.0, 0.0)
    assert exact.pick([1, 7, 4, 4, 4, 0]) == [1, 2, 3]
    assert exact.pick([2, 3]) == [1, 0]
    assert exact.pick([]) == []
    assert (exact.event(), exact.own_delta) == (dpa.NonPrivateDpEvent(), 0.0)


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ((0, 1, 1.0, 0.1), "domain must be"),
        ((3, 0, 1.0, 0.1), "picks must be"),
        ((3, 4, 1.0, 0.1), "picks must be"),
        ((3, 1, -1.0, 0.1), "scale must be"),
        ((3, 1, math.nan, 0.1), "scale must be"),
        ((3, 1, math.inf, 0.1), "scale must be"),
        ((3, 1, 2.0**-21, 0.1), "scale must be"),
        ((3, 1, 1.0, 0.0), "delta must be"),
        ((3, 1, 1.0, 1.5), "delta must be"),
        ((3, 1, 1.0, math.nan), "delta must be"),
    ],
)
def test_numbers_that_promise_nothing_are_refused(setting, match):
    with pytest.raises(ValueError, match=match):
        LimitedDomain(*setting)


# --- what it costs


def test_a_call_costs_an_eighth_for_each_pick():
    mechanism = LimitedDomain(200, 30, 25.0, 1e-5)
    assert mechanism.event() == dpa.ZCDpEvent(30 / (8 * 25.0**2))
    assert mechanism.own_delta == 1e-5
    assert from_json(to_json(mechanism.event())) == mechanism.event()


@given(st.floats(1e-9, 1e3), st.integers(1, 1000), st.integers(1, 1000))
def test_the_scale_keeps_all_calls_within_rho(rho, rounds, picks):
    scale = gumbel_scale(rounds * picks, rho)
    assert rounds * (picks / (8.0 * scale**2)) <= rho
    assert rounds * (picks / (8.0 * scale**2)) == pytest.approx(rho)


@given(st.floats(1e-12, 0.5), st.integers(1, 1000))
def test_deltas_of_all_calls_never_pass_the_total(total, rounds):
    each = delta_for(total, rounds)
    assert max(rounds * each, sum([each] * rounds)) <= total
    assert rounds * each == pytest.approx(total)


@given(st.floats(2.0**-20, 2.0**40), st.floats(1e-300, 1.0))
def test_the_bottom_is_never_lower_than_the_gap(scale, delta):
    mechanism = LimitedDomain(1, 1, scale, delta)
    assert gap(scale, delta) <= mechanism.offset < 2**63
    assert mechanism.offset <= gap(scale, delta) * (1.0 + 1e-9) + 1.0
    assert math.exp(max(-800.0, (1.0 - mechanism.offset) / scale)) <= delta * (1.0 + 1e-9) + 1e-300


@pytest.mark.parametrize(
    ("delta", "votes", "printed", "sigma"),
    [(1 / 5452, 288, 576, 8.0), (1 / (5452 * math.log(5452)), 392, 783, 9.4)],
)
def test_the_gap_of_a_small_data_set_is_what_the_planner_says(delta, votes, printed, sigma):
    """5,452 records, epsilon 1, 7 rounds of 30 picks: half of delta converts, half is split over the rounds."""
    rounds, picks = 7, 30
    scale = gumbel_scale(rounds * picks, accounting.zcdp_rho(1.0, delta / 2.0))
    each = delta_for(delta / 2.0, rounds)
    assert round(gap(scale, each)) == votes
    assert round(gap(2.0 * scale, each)) == printed
    assert accounting.gdp_sigma(1.0, delta, rounds) == pytest.approx(sigma, abs=0.05)
    event = dpa.SelfComposedDpEvent(LimitedDomain(400, picks, scale, each).event(), rounds)
    assert accounting.epsilon(event, delta - rounds * each) == pytest.approx(1.0, rel=1e-6)


# --- mutants: one fault each, and the check that sees it


class WithoutTheVote(LimitedDomain):
    """The offset lacks its 1."""

    @property
    def offset(self) -> int:
        return super().offset - 1


class WithoutTheThreshold(LimitedDomain):
    """The offset lacks b ln(1 / delta)."""

    @property
    def offset(self) -> int:
        return 1


class WithoutABottom(LimitedDomain):
    """The bottom never comes."""

    def score_bins(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        leading, scores = super().score_bins(counts)
        return leading, [*scores[:-1], -(10**6)]


class OneRankTooLow(LimitedDomain):
    """The bottom is measured from the (domain + 2)-th bin."""

    def score_bins(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        leading, scores = super().score_bins(counts)
        order = sorted(counts, reverse=True)
        return leading, [*scores[:-1], (order[self.domain + 1] if len(order) > self.domain + 1 else 0) + self.offset]


class HalfTheNoise(LimitedDomain):
    """Charged as if the scale were twice what is drawn."""

    def event(self) -> dpa.DpEvent:
        return dpa.ZCDpEvent(self.picks / (8.0 * (2.0 * self.scale) ** 2))


class OnePick(LimitedDomain):
    """Charged as if one pick were all, as published."""

    def event(self) -> dpa.DpEvent:
        return dpa.ZCDpEvent(1.0 / (8.0 * self.scale**2))


class TiesByChance(LimitedDomain):
    """Equal counts are put in an order that depends on the other votes."""

    def score_bins(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        turned = len(counts) - 1 if sum(counts) % 2 else 0
        leading, scores = super().score_bins([counts[abs(turned - place)] for place in range(len(counts))])
        return [abs(turned - place) for place in leading], scores


class VotesCountTwice(LimitedDomain):
    """A record has two votes for one bin."""

    def score_bins(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        return super().score_bins([2 * count for count in counts])


class HalfTheDelta(LimitedDomain):
    """Charged half of what the threshold leaves."""

    @property
    def own_delta(self) -> float:
        return self.delta / 2.0


class PastTheBottom(LimitedDomain):
    """Bins come out although they are below the bottom."""

    def pick(self, counts: Sequence[int]) -> list[int]:
        leading, scores = self.score_bins(counts)
        order = limited_domain.gumbel_top_k(scores, min(self.picks, len(scores)), self.scale)
        return [leading[place] for place in order if place < len(leading)]


class InTrueOrder(LimitedDomain):
    """What comes out is in the order of the exact counts."""

    def pick(self, counts: Sequence[int]) -> list[int]:
        return sorted(super().pick(counts), key=lambda index: (-counts[index], index))


class Louder(LimitedDomain):
    """The sampler has a third less noise than the law."""

    def pick(self, counts: Sequence[int]) -> list[int]:
        leading, scores = self.score_bins(counts)
        order = limited_domain.gumbel_top_k(scores, min(self.picks, len(scores)), self.scale * 0.67)
        return [leading[place] for place in itertools.takewhile(lambda place: place < len(leading), order)]


MUTANTS = [
    (WithoutTheVote, check_one_vote_is_within_epsilon_and_delta),
    (WithoutTheVote, check_one_vote_is_within_rho_of_what_is_delta_away),
    (WithoutTheThreshold, check_one_vote_is_within_epsilon_and_delta),
    (WithoutABottom, check_one_vote_is_within_epsilon_and_delta),
    (WithoutABottom, check_two_calls_are_within_what_is_charged),
    (OneRankTooLow, check_one_vote_is_within_epsilon_and_delta),
    (HalfTheNoise, check_one_vote_is_within_epsilon_and_delta),
    (HalfTheNoise, check_one_vote_is_within_rho_of_what_is_delta_away),
    (OnePick, check_one_vote_is_within_rho_of_what_is_delta_away),
    (TiesByChance, check_one_vote_is_within_rho_of_what_is_delta_away),
    (VotesCountTwice, check_one_vote_is_within_epsilon_and_delta),
    (VotesCountTwice, check_one_vote_is_within_rho_of_what_is_delta_away),
    (HalfTheDelta, check_one_vote_is_within_epsilon_and_delta),
    (PastTheBottom, check_the_sampler_follows_the_law),
    (InTrueOrder, check_the_sampler_follows_the_law),
    (Louder, check_the_sampler_follows_the_law),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda part: part.__name__)
def test_each_planted_fault_is_seen(mutant, check):
    with pytest.raises(AssertionError):
        check(mutant)


def test_a_bottom_measured_from_the_last_that_can_be_picked_is_private_too():
    """One rank too high is no fault of privacy: it is only harder to pass."""

    class OneRankTooHigh(LimitedDomain):
        def score_bins(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
            leading, scores = super().score_bins(counts)
            return leading, [*scores[:-1], (scores[-2] if len(scores) > self.domain else 0) + self.offset]

    check_one_vote_is_within_epsilon_and_delta(OneRankTooHigh)
