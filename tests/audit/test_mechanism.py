"""The package's mechanisms are not refuted; what is broken about them on purpose is."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from palimpsest.audit import mechanism
from palimpsest.audit.mechanism import (
    TRAINING,
    Sizing,
    against,
    audit_gumbel_top_k,
    audit_histogram,
    audit_limited_domain,
    audit_means,
    audit_mechanisms,
    audit_noisy_top_k,
    audit_token,
    audit_training,
    audit_votes,
    weaker,
    weaker_domain,
    weaker_training,
)
from palimpsest.prediction.mechanism import FixedClipping, draw
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.mechanisms import gumbel_top_k
from palimpsest.privacy.votes import Ballot

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
    "too little noise": weaker_training,
    "noise over the batch size": changed(noise_multiplier=1.0 / (TRAINING.rate * SIZING.trials)),
    "the same noise at every step": lambda query, rows, noise: query.run(rows, Repeating(3)),
    "a rate twice too high": lambda query, rows, noise: query.run(rows, Doubled(3)),
    "no clipping": without_clipping,
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_training_is_refuted(fault):
    twin = audit_training(SIZING, NoiseSource(3), BROKEN[fault])
    assert twin.verdict == "refuted"
    assert against(trained_well(), twin).verdict == "not refuted"
    assert against(trained_well(), twin).power > 0.8


def test_noise_that_repeats_is_seen_by_the_spread_alone():
    looks = audit_training(SIZING, NoiseSource(3), BROKEN["the same noise at every step"]).looks
    assert [look for look in looks if looks[look].violated] == ["spread over steps"]


def test_a_correct_training_flags_about_as_often_as_its_plan_says():
    look = trained_well().looks["sum over steps"]
    assert look.false_positives.rate == pytest.approx(0.25, abs=0.05)
    assert 0.0 < look.epsilon < look.epsilon_max


# --- counts, votes and means -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("audit", [audit_histogram, audit_votes, audit_means])
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


FAULTS = [
    (audit_histogram, mechanism.weaker_histogram),
    (audit_histogram, exact),
    (audit_histogram, counted_twice),
    (audit_votes, mechanism.weaker_vote),
    (audit_votes, noise_for_one_vote),
    (audit_votes, counted_twice),
    (audit_means, mechanism.weaker_means),
    (audit_means, exact),
    (audit_means, unit_only),
]


@pytest.mark.parametrize(("audit", "fault"), FAULTS)
def test_broken_counts_are_refuted(audit, fault):
    assert audit(SIZING, NoiseSource(3), fault).verdict == "refuted"


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


@pytest.mark.parametrize("audit", [audit_noisy_top_k, audit_gumbel_top_k, audit_limited_domain])
def test_selections_are_not_refuted(audit):
    assert not audit(SIZING).refuted


def without_bottom(domain: LimitedDomain, counts):
    leading, scores = domain.scored(counts)
    return [leading[place] for place in gumbel_top_k(scores[:-1], domain.picks, domain.scale)]


def bottom_without_offset(domain: LimitedDomain, counts):
    leading, scores = domain.scored(counts)
    order = gumbel_top_k([*scores[:-1], scores[-1] - domain.offset], len(scores), domain.scale)
    return [leading[place] for place in order[: order.index(len(leading))]][: domain.picks]


@pytest.mark.parametrize("fault", [weaker_domain, without_bottom, bottom_without_offset])
def test_broken_domains_are_refuted(fault):
    assert audit_limited_domain(SELECTIONS, fault).verdict == "refuted"


@pytest.mark.parametrize("fault", [without_bottom, bottom_without_offset])
def test_a_bottom_that_hides_nothing_is_seen_by_what_enters(fault):
    looks = audit_limited_domain(SIZING, fault).looks
    assert looks["entering"].violated
    assert looks["entering"].false_positives.count == 0


@pytest.mark.parametrize("audit", [audit_noisy_top_k, audit_gumbel_top_k])
def test_broken_selections_are_refuted(audit):
    own = mechanism.noisy_top_k if audit is audit_noisy_top_k else gumbel_top_k
    assert audit(SELECTIONS, weaker(own)).verdict == "refuted"


def first_best(scores, k, scale):
    return np.argsort(-np.array(scores), kind="stable")[:k]


def last_best(scores, k, scale):
    return np.argsort(scores, kind="stable")[::-1][:k]


@pytest.mark.parametrize("audit", [audit_noisy_top_k, audit_gumbel_top_k])
@pytest.mark.parametrize("fault", [first_best, last_best])
def test_selections_without_noise_are_refuted_however_they_break_ties(audit, fault):
    assert audit(SIZING, fault).refuted


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


@pytest.mark.parametrize("fault", [mechanism.weaker_token, over_the_real_number, without_cutting, greedy])
def test_broken_tokens_are_refuted(fault):
    assert audit_token(SIZING, NoiseSource(3), fault).verdict == "refuted"


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_without_a_twin_that_is_caught_nothing_was_shown():
    alone = trained_well()
    assert (alone.verdict, alone.power) == ("inconclusive", None)
    same = against(alone, alone)
    assert same.verdict == "inconclusive"
    assert same.power < 1e-3


def test_a_small_audit_is_inconclusive():
    small = Sizing(trials=30, alpha=1e-3, delta=1e-5)
    audit = against(audit_histogram(small, NoiseSource(1)), audit_histogram(small, NoiseSource(1), exact))
    weak = against(
        audit_histogram(small, NoiseSource(1)), audit_histogram(small, NoiseSource(1), mechanism.weaker_histogram)
    )
    assert audit.verdict == "not refuted"  # no noise at all shows in thirty trials, a third less does not
    assert weak.verdict == "inconclusive"


def test_all_families_pass_with_their_controls_and_say_so_in_json():
    audits = audit_mechanisms(SELECTIONS, NoiseSource(5))
    assert len({audit.name for audit in audits}) == 8
    for audit in audits:
        body = audit.to_json()
        assert body["verdict"] == "not refuted"
        assert body["control"]["verdict"] == "refuted"
        assert body["power"] > 0.8
        assert 0.0 < body["epsilon"] < body["epsilon_max"]
        assert sum(look["alpha"] for look in body["looks"].values()) == pytest.approx(SELECTIONS.alpha)
        assert all(look["false_positives"]["n"] == SELECTIONS.trials for look in body["looks"].values())


def test_a_sizing_out_of_range_is_refused():
    with pytest.raises(ValueError, match="trials"):
        Sizing(trials=0, alpha=1e-3, delta=1e-5)
    with pytest.raises(ValueError, match="alpha"):
        Sizing(trials=10, alpha=2.0, delta=1e-5)
