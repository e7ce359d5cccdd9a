"""Attacks that compare a model's losses with those of models that never saw the records: offline LiRA and RMIA.

The other models (shadow or reference models) may be trained on public rows, or on private rows that nobody guesses
about. None may be fitted on the coin of a guessed record: then the bound of one run holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest import validate
from palimpsest.audit.units import Scores

_LEAST = 1e-12  # loss of a certain model, and deviation of shadow models that agree


@dataclass(frozen=True, eq=False)
class Population:
    """Losses on records of the same kind that neither the target nor a reference model was trained on."""

    target: np.ndarray  # under the attacked model, shape (z,)
    references: np.ndarray  # under each reference model, shape (models, z)


def confidence(losses: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)) of p = exp(-loss), which is roughly normal over models (Carlini et al. 2022).

    Args:
        losses: mean token losses in nats, any shape, each >= 0.
    """
    losses = np.maximum(losses, _LEAST)
    return -losses - np.log(-np.expm1(-losses))


def lira_attack(target: Scores, shadows: Sequence[Scores], *, pooled: bool) -> Scores:
    """Attack by offline LiRA: a record likelier than under models not trained on it is rather a member.

    The score is (confidence - mean) / deviation, mean and deviation over the shadow models: its normal distribution
    function is the published score (Carlini et al. 2022), and it does not saturate.

    Args:
        target: losses under the attacked model.
        shadows: losses under each shadow model, none of which was trained on a record of either side.
        pooled: one deviation for all records of both sides together, as published for few models; else each record has
            its own, which takes many.
    """
    validate.require_in_range(1 if pooled else 2, np.inf, shadow_models=len(shadows))
    out = confidence(np.stack([shadow.joined for shadow in shadows]))
    deviation = _deviation(out, pooled)
    return Scores.split((confidence(target.joined) - out.mean(axis=0)) / deviation, len(target.members))


def rmia_attack(
    target: Scores, references: Sequence[Scores], population: Population, *, offset: float, gamma: float
) -> Scores:
    """Attack by offline RMIA.

    A record that gained more from the target's training than most of a population is rather a member.

    The score is the share of population records z with (p(x | target) / p(x)) / (p(z | target) / p(z)) >= gamma, where
    p(.) = ((1 + a) mean over references of p(. | reference) + (1 - a)) / 2 (Zarifzadeh et al. 2024). Here p is
    exp(-loss), the geometric mean of a record's token probabilities.

    Args:
        target: losses under the attacked model.
        references: losses under each reference model, one at least; none was trained on a record of either side.
        offset: a, in [0, 1]: how far a reference model that was trained on a record would resemble one that was not.
        gamma: how much more a record must have gained, at least 1 in the paper.
    """
    validate.require_in_range(0, 1, offset=offset)
    validate.require_positive(gamma=gamma, reference_models=len(references), population=len(population.target))
    gained = _ratio(target.joined, np.stack([reference.joined for reference in references]), offset)
    others = np.sort(gamma * _ratio(population.target, population.references, offset))
    return Scores.split(np.searchsorted(others, gained, side="right") / len(others), len(target.members))


def _ratio(target: np.ndarray, references: np.ndarray, offset: float) -> np.ndarray:
    """Return p(x | target) / p(x), shape (records,), from losses (records,) and (models, records)."""
    out = np.exp(-references).mean(axis=0)
    return np.exp(-target) / (((1.0 + offset) * out + (1.0 - offset)) / 2.0)


def _deviation(out: np.ndarray, pooled: bool) -> np.ndarray | float:
    """Return the standard deviation over models, of each record or pooled over all; 1 for a single model."""
    if len(out) == 1:
        return 1.0
    variance = out.var(axis=0, ddof=1)
    return np.maximum(np.sqrt(variance.mean() if pooled else variance), _LEAST)
