"""Epsilon by both countings: as a paper counts it, and as it truly is.

000 clips and noises two gradients of one batch separately and charges a step once. Together they have the sensitivity
sqrt(2) C, so its noise is sqrt(2) times too small for the stated epsilon. 004 charges a call of the selection as if it
picked one candidate. 002 prints its noise, from which epsilon follows. All others count as is done here.
"""

import math
from collections.abc import Mapping

import dp_accounting.dp_event as dpa
import scipy

from palimpsest.privacy import accounting
from palimpsest_lab.reproduce.grid import Counting

_NOISES = 0.02, 64.0  # the noise multiplier is searched between them


def true_epsilon(counting: Counting, data: str, epsilon: float, records: int) -> float:
    """Return the true value of an epsilon that a paper states.

    It holds at delta = 1 / records, or at 1 / (n ln n) for printed noise.

    It uses the paper's accountant: Renyi divergences for two gradients, zCDP for picks, the exact Gaussian for printed
    noise.
    """
    if math.isinf(epsilon) or epsilon == 0:
        return epsilon
    if counting.kind == "two_gradients":
        stated = _noise(counting, epsilon, records)
        return _renyi(counting, stated / math.sqrt(2.0), records)
    if counting.kind == "one_pick":
        return _epsilon_of_picks(epsilon, float(counting.picks), records)
    noise = counting.noise.get(data, {}).get(epsilon)
    if counting.kind == "printed_noise" and noise is not None:
        return accounting.gdp_epsilon(math.sqrt(counting.rounds) / noise, 1.0 / (records * math.log(records)))
    return epsilon


def counted_epsilon(
    counting: Counting, epsilon: float, numbers: Mapping[str, float | int | str], records: int
) -> float:
    """Return the epsilon that the paper would state for a run that is charged `epsilon` here.

    Args:
        numbers: of the run's plan.
    """
    if math.isinf(epsilon) or epsilon == 0:
        return epsilon
    if counting.kind == "two_gradients" and numbers.get("clipping") == "separate":
        return _renyi(counting, float(numbers["noise_multiplier"]), records)
    if counting.kind == "one_pick" and "gap" in numbers:
        return _epsilon_of_picks(epsilon, 1.0 / counting.picks, records)
    return epsilon


def _epsilon_of_picks(epsilon: float, picks: float, records: int) -> float:
    """Return the epsilon of `picks` times the rho."""
    delta = 1.0 / records
    return accounting.zcdp_epsilon(picks * accounting.zcdp_rho(epsilon, delta), delta)


def _noise(counting: Counting, epsilon: float, records: int) -> float:
    """Return the noise multiplier that meets an epsilon by Renyi divergences where a step is charged once."""
    return float(scipy.optimize.brentq(lambda noise: _renyi(counting, noise, records) - epsilon, *_NOISES, xtol=1e-4))


def _renyi(counting: Counting, noise: float, records: int) -> float:
    rate = min(1.0, counting.batch / records)
    step = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise))
    training = dpa.SelfComposedDpEvent(step, max(1, round(counting.epochs / rate)))
    return accounting.epsilon(training, 1.0 / records, "rdp")
