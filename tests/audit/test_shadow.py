"""Shadow models take away what makes a record hard, and what is left tells members."""

import numpy as np
import pytest

from palimpsest.audit.statistics import auc_value
from palimpsest.audit.units import Scores
from palimpsest_lab.audits.shadow import Population, confidence, lira_attack, rmia_attack

SIDE, MODELS = 200, 4


def split(values):
    return Scores(values[:SIDE], values[SIDE:])


def world(effect, seed=0):
    """Losses of records that differ much in how hard they are; the target's are lower by `effect` on members."""
    rng = np.random.default_rng(seed)
    hard = rng.uniform(1.0, 5.0, 2 * SIDE)
    target = hard + rng.normal(0, 0.1, 2 * SIDE) - effect * (np.arange(2 * SIDE) < SIDE)
    shadows = [split(hard + rng.normal(0, 0.1, 2 * SIDE)) for _ in range(MODELS)]
    others = rng.uniform(1.0, 5.0, 300)
    population = Population(others + rng.normal(0, 0.1, 300), others + rng.normal(0, 0.1, (MODELS, 300)))
    return split(target), shadows, population


def auc(scores):
    return auc_value(scores.members, scores.nonmembers)


def every(target, shadows, population):
    return {
        "pooled": lira_attack(target, shadows, pooled=True),
        "own": lira_attack(target, shadows, pooled=False),
        "rmia": rmia_attack(target, shadows, population, offset=1.0, gamma=1.0),
    }


def test_members_of_all_kinds_are_found_behind_their_difficulty():
    target, shadows, population = world(0.3)
    assert auc(Scores(-target.members, -target.nonmembers)) < 0.62
    for name, scores in every(target, shadows, population).items():
        assert auc(scores) > 0.9, name


def test_a_model_that_learned_nothing_gives_nothing_away():
    for name, scores in every(*world(0.0)).items():
        assert 0.42 < auc(scores) < 0.58, name


def test_confidence_is_the_log_odds():
    chances = np.array([0.01, 0.5, 0.99])
    assert confidence(-np.log(chances)) == pytest.approx(np.log(chances / (1 - chances)))
    assert np.isfinite(confidence(np.array([0.0, 800.0]))).all()


def test_lira_by_hand():
    losses = -np.log([[0.5, 0.2], [0.8, 0.2], [0.6, 0.4]])
    target, shadows = Scores(losses[2, :1], losses[2, 1:]), [Scores(row[:1], row[1:]) for row in losses[:2]]
    odds = np.log([[1.0, 0.25], [4.0, 0.25], [1.5, 2 / 3]])
    means, wide = odds[:2].mean(axis=0), odds[:2, 0].std(ddof=1)
    pooled = lira_attack(target, shadows, pooled=True)
    assert pooled.members[0] == pytest.approx((odds[2, 0] - means[0]) / (wide / np.sqrt(2)))
    assert pooled.nonmembers[0] == pytest.approx((odds[2, 1] - means[1]) / (wide / np.sqrt(2)))
    assert lira_attack(target, shadows, pooled=False).members[0] == pytest.approx((odds[2, 0] - means[0]) / wide)
    assert lira_attack(target, shadows[:1], pooled=True).members[0] == pytest.approx(odds[2, 0] - odds[0, 0])


def test_pooling_takes_the_spread_of_both_sides_together():
    target, shadows, _ = world(0.3)
    joined = np.stack([np.concatenate([one.members, one.nonmembers]) for one in shadows])
    deviation = np.sqrt(confidence(joined).var(axis=0, ddof=1).mean())
    gap = confidence(target.members) - confidence(joined).mean(axis=0)[:SIDE]
    assert lira_attack(target, shadows, pooled=True).members == pytest.approx(gap / deviation)


@pytest.mark.parametrize(("count", "pooled"), [(0, True), (1, False)])
def test_lira_needs_models(count, pooled):
    target, shadows, _ = world(0.3)
    with pytest.raises(ValueError, match="shadow_models"):
        lira_attack(target, shadows[:count], pooled=pooled)


@pytest.mark.parametrize(("offset", "gamma"), [(1.0, 1.0), (0.3, 2.0), (0.0, 1.0)])
def test_rmia_equals_comparing_with_every_record_of_the_population(offset, gamma):
    target, shadows, population = world(0.3)
    found = rmia_attack(target, shadows, population, offset=offset, gamma=gamma)

    def gained(loss, out):
        return np.exp(-loss) / (((1 + offset) * np.mean(np.exp(-np.array(out))) + 1 - offset) / 2)

    others = [gained(*pair) for pair in zip(population.target, population.references.T, strict=True)]
    for index in (0, 1, 2):
        own = gained(target.members[index], [shadow.members[index] for shadow in shadows])
        assert found.members[index] == np.mean([own / other >= gamma for other in others])
        other = gained(target.nonmembers[index], [shadow.nonmembers[index] for shadow in shadows])
        assert found.nonmembers[index] == np.mean([other / one >= gamma for one in others])


def test_a_larger_gamma_asks_for_more():
    target, shadows, population = world(0.3)
    small, large = (rmia_attack(target, shadows, population, offset=1.0, gamma=gamma) for gamma in (1.0, 1.3))
    assert (small.members >= large.members).all()
    assert small.members.mean() > large.members.mean()


@pytest.mark.parametrize("change", [{"offset": 1.5}, {"gamma": 0.0}])
def test_rmia_checks_its_settings(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        rmia_attack(*world(0.3), **{"offset": 1.0, "gamma": 1.0, **change})


def test_gaining_as_much_as_a_record_of_the_population_counts():
    one, reference = Scores(np.array([1.0]), np.array([1.0])), Scores(np.array([2.0]), np.array([2.0]))
    population = Population(np.array([1.0, 0.5]), np.array([[2.0, 2.0]]))
    assert rmia_attack(one, [reference], population, offset=1.0, gamma=1.0).members.tolist() == [0.5]
