"""The package's mechanisms are not refuted; what is broken about them on purpose is."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from palimpsest.audit.statistics import clopper_pearson
from palimpsest.prediction.mechanism import FixedClipping, draw
from palimpsest.privacy.choice import Choice
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import gumbel_rho
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.queries import gumbel_top_k
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.votes import Ballot
from tools import mechanism_audit as mechanism
from tools.mechanism_audit import (
    TRAINING,
    Sizing,
    audit_gumbel_top_k,
    audit_histogram,
    audit_limited_domain,
    audit_means,
    audit_statements,
    audit_token,
    audit_training,
    audit_votes,
)

WEAKER = 1.5  # how much less noise there is than claimed
SIZING = Sizing(trials=1200, alpha=1e-3, delta=1e-5)
SELECTIONS = dataclasses.replace(SIZING, trials=3000)  # at 1,200 their weaker twins are missed in one run of ten


@functools.cache
def trained_well():
    return audit_training(SIZING, NoiseSource(3))


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_training_is_not_refuted(seed):
    assert not audit_training(SIZING, NoiseSource(seed)).refuted


class Repeating(NoiseSource):
    """Adds the same noise at every step."""

    def add_gaussian(self, tensor, std):
        NoiseSource(7).add_gaussian(tensor, std)


class Doubled(NoiseSource):
    """Takes records into batches more often than planned."""

    def bernoulli(self, size, rate):
        return super().bernoulli(size, min(1.0, 2.0 * rate))


def changed(**of_plan):
    return lambda query, rows, noise: dataclasses.replace(query, plan=dataclasses.replace(query.plan, **of_plan)).run(
        rows, noise
    )


def without_clipping(query, rows, noise):
    """A norm of ten times C, with the same noise."""
    loose = {"clipping_norm": 10 * TRAINING.clipping_norm, "noise_multiplier": TRAINING.noise_multiplier / 10}
    return changed(**loose)(query, rows, noise)


BROKEN = {
    "no noise": changed(noise_multiplier=0.0),
    "too little noise": changed(noise_multiplier=TRAINING.noise_multiplier / WEAKER),
    "noise over the batch size": changed(noise_multiplier=1.0 / (TRAINING.rate * SIZING.trials)),
    "the same noise at every step": lambda query, rows, noise: query.run(rows, Repeating(3)),
    "a rate twice too high": lambda query, rows, noise: query.run(rows, Doubled(3)),
    "no clipping": without_clipping,
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_training_is_refuted(fault):
    twin = audit_training(SIZING, NoiseSource(3), BROKEN[fault])
    assert twin.refuted
    assert not trained_well().refuted


def test_noise_that_repeats_is_seen_by_the_spread_alone():
    looks = audit_training(SIZING, NoiseSource(3), BROKEN["the same noise at every step"]).looks
    assert [look for look in looks if looks[look].violated] == ["spread over steps"]


def test_a_correct_training_flags_about_as_often_as_its_plan_says():
    look = trained_well().looks["sum over steps"]
    assert look.false_positives.rate == pytest.approx(0.25, abs=0.05)
    assert 0.0 < look.epsilon < look.epsilon_max


# --- counts, votes and means -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("audit", [audit_histogram, audit_votes, audit_means, audit_statements])
@pytest.mark.parametrize("seed", [1, 2])
def test_counts_are_not_refuted(audit, seed):
    assert not audit(SIZING, NoiseSource(seed)).refuted


def exact(query, rows, noise):
    return dataclasses.replace(query, sigma=0.0).run(rows, noise)


def counted_twice(query, rows, noise):
    return query.run([*rows, *rows], noise)


def noise_for_one_vote(query, rows, noise):
    """Noise of sigma on each of a record's votes, whatever their number."""
    narrower = dataclasses.replace(query.ballot, sigma=query.ballot.sigma / query.ballot.neighbours**0.5)
    return dataclasses.replace(query, ballot=narrower).run(rows, noise)


def unit_only(query, rows, noise):
    """Sums of vectors as long as they are."""
    sums = np.array(query.run(rows, noise))
    return sums + np.array(query.run(rows, NoiseSource(9))) - np.array(query.run([], NoiseSource(9)))


def quieter(query, rows, noise):
    return dataclasses.replace(query, sigma=query.sigma / WEAKER).run(rows, noise)


def quieter_vote(query, rows, noise):
    quiet = dataclasses.replace(query.ballot, sigma=query.ballot.sigma / WEAKER)
    return dataclasses.replace(query, ballot=quiet).run(rows, noise)


FAULTS = [
    (audit_histogram, quieter),
    (audit_histogram, exact),
    (audit_histogram, counted_twice),
    (audit_votes, quieter_vote),
    (audit_votes, noise_for_one_vote),
    (audit_votes, counted_twice),
    (audit_means, quieter),
    (audit_means, exact),
    (audit_means, unit_only),
    (audit_statements, quieter),
    (audit_statements, exact),
    (audit_statements, counted_twice),
]


@pytest.mark.parametrize(("audit", "fault"), FAULTS)
def test_broken_counts_are_refuted(audit, fault):
    assert audit(SIZING, NoiseSource(3), fault).refuted


def test_each_label_of_a_vote_has_many_records_and_no_trial_sees_another():
    seen = []

    def noted(query, rows, noise):
        exact_votes = dataclasses.replace(query, ballot=dataclasses.replace(query.ballot, sigma=0.0))
        seen.append(exact_votes.run(rows, noise))
        return query.run(rows, noise)

    sizing = Sizing(trials=120, alpha=1e-3, delta=1e-5)
    audit_votes(sizing, NoiseSource(1), noted)
    counts = np.concatenate(list(seen[0].values())).reshape(-1, 4)
    assert np.array_equal(counts, np.repeat(sizing.present[:, None], 4, axis=1))
    assert isinstance(Ballot, type)
    assert len(seen[0]) == 3


# --- selections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("audit", [audit_gumbel_top_k, audit_limited_domain])
def test_selections_are_not_refuted(audit):
    assert not audit(SIZING).refuted


def scored(scores):
    """Rows, and classifiers that are right on so many of them."""
    rows = [PrivateRow("", str(place)) for place, score in enumerate(scores) for _ in range(score)]
    return rows, tuple(lambda texts, own=str(place): [own] * len(texts) for place in range(len(scores)))


def by_choice(scores, _, scale):
    rows, classifiers = scored(scores)
    return [Choice(classifiers, gumbel_rho(1, scale)).run(rows, NoiseSource())]


def exact_choice(scores, _, scale):
    rows, classifiers = scored(scores)
    return [Choice(classifiers, gumbel_rho(1, 0.0)).run(rows, NoiseSource())]


def choice_of_all_rows(scores, k, scale):
    return by_choice([4 * score for score in scores], k, scale)


def test_a_choice_among_variants_is_not_refuted():
    assert not audit_gumbel_top_k(SIZING, by_choice).refuted


@pytest.mark.parametrize("fault", [exact_choice, choice_of_all_rows])
def test_broken_choices_are_refuted(fault):
    assert audit_gumbel_top_k(SIZING, fault).refuted


def without_bottom(domain: LimitedDomain, counts):
    leading, scores = domain.score_bins(counts)
    return [leading[place] for place in gumbel_top_k(scores[:-1], domain.picks, domain.scale)]


def bottom_without_offset(domain: LimitedDomain, counts):
    leading, scores = domain.score_bins(counts)
    order = gumbel_top_k([*scores[:-1], scores[-1] - domain.offset], len(scores), domain.scale)
    return [leading[place] for place in order[: order.index(len(leading))]][: domain.picks]


def quieter_domain(domain: LimitedDomain, counts):
    """Too little noise, and a bottom that belongs to it."""
    return dataclasses.replace(domain, scale=domain.scale / WEAKER).pick(counts)


@pytest.mark.parametrize("fault", [quieter_domain, without_bottom, bottom_without_offset])
def test_broken_domains_are_refuted(fault):
    assert audit_limited_domain(SELECTIONS, fault).refuted


@pytest.mark.parametrize("fault", [without_bottom, bottom_without_offset])
def test_a_bottom_that_hides_nothing_is_seen_by_what_enters(fault):
    looks = audit_limited_domain(SIZING, fault).looks
    assert looks["entering"].violated
    assert looks["entering"].false_positives.count == 0


def test_a_broken_selection_is_refuted():
    assert audit_gumbel_top_k(SELECTIONS, lambda scores, k, scale: gumbel_top_k(scores, k, scale / WEAKER)).refuted


def first_best(scores, k, scale):
    return np.argsort(-np.array(scores), kind="stable")[:k]


def last_best(scores, k, scale):
    return np.argsort(scores, kind="stable")[::-1][:k]


@pytest.mark.parametrize("fault", [first_best, last_best])
def test_a_selection_without_noise_is_refuted_however_it_breaks_ties(fault):
    assert audit_gumbel_top_k(SIZING, fault).refuted


# --- prediction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("clipping", [mechanism.TOKEN, FixedClipping(clip=8.0, temperature=1.0, batch_size=8)])
def test_tokens_are_not_refuted(seed, clipping):
    assert not audit_token(SIZING, NoiseSource(seed), clipping=clipping).refuted


def over_the_real_number(clipping, private, public, noise):
    total = clipping.contributions(private, public).sum(dim=0)
    return draw(dataclasses.replace(clipping, batch_size=len(private)).scores(total, public), noise)


def without_cutting(clipping, private, public, noise):
    return draw(clipping.scores((private - public).sum(dim=0), public), noise)


def greedy(clipping, private, public, noise):
    return int(torch.argmax(clipping.scores(clipping.contributions(private, public).sum(dim=0), public)))


def colder(clipping, *logits_and_noise):
    """A temperature that is too low."""
    cold = dataclasses.replace(clipping, temperature=clipping.temperature / WEAKER)
    return mechanism.next_token(cold, *logits_and_noise)


@pytest.mark.parametrize("fault", [colder, over_the_real_number, without_cutting, greedy])
def test_broken_tokens_are_refuted(fault):
    assert audit_token(SIZING, NoiseSource(3), fault).refuted


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_small_audit_sees_no_noise_at_all_and_misses_a_third_less():
    small = Sizing(trials=30, alpha=1e-3, delta=1e-5)
    found = [audit_histogram(small, NoiseSource(1), fault) for fault in (exact, quieter)]
    assert [audit.refuted for audit in found] == [True, False]


def test_the_looks_share_alpha_and_see_every_trial():
    audit = audit_limited_domain(SIZING)
    assert 0.0 < audit.epsilon < audit.epsilon_max
    for look in audit.looks.values():
        assert look.false_positives.n == look.true_positives.n == SIZING.trials
        high = clopper_pearson(look.false_positives.count, SIZING.trials, 1 - SIZING.alpha / 2).high
        assert look.false_positives.high == high


def test_a_sizing_out_of_range_is_refused():
    with pytest.raises(ValueError, match="trials"):
        Sizing(trials=0, alpha=1e-3, delta=1e-5)
    with pytest.raises(ValueError, match="alpha"):
        Sizing(trials=10, alpha=2.0, delta=1e-5)
