"""What the ledger states as spent holds after the fact, at whatever moment somebody looks: every outcome enumerated.

An adversary asks randomized responses of two neighbouring data sets. The truth of each answer is the bit that tells the
data sets apart. After every answer it chooses the next strength, or stops, by what it has seen.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dp_accounting as dpa
import pytest

from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import FILTER_ORDERS, Asset

MOST = 9  # questions
Choice = Callable[[Sequence[int]], float | None]


@dataclass(frozen=True)
class Ending:
    """One transcript: its probability on the data set, the privacy loss to its neighbour, and what was asked."""

    chance: float
    loss: float
    asked: tuple[float, ...]


def endings(choose: Choice, seen: tuple[int, ...] = (), asked: tuple[float, ...] = ()) -> Iterator[Ending]:
    """Every transcript of the adversary on the data set whose bit is 1, against the one whose bit is 0."""
    strength = choose(seen) if len(seen) < MOST else None
    if strength is None:
        losses = [value if bit else -value for bit, value in zip(seen, asked, strict=True)]
        chances = [1 / (1 + math.exp(-loss)) for loss in losses]
        yield Ending(math.prod(chances), sum(losses), asked)
        return
    for bit in (0, 1):
        yield from endings(choose, (*seen, bit), (*asked, strength))


def divergence(strength: float, order: float) -> float:
    """The Renyi divergence of one randomized response; the same in both directions."""
    true = 1 / (1 + math.exp(-strength))
    moment = true * math.exp((order - 1) * strength) + (1 - true) * math.exp((1 - order) * strength)
    return math.log(moment) / (order - 1)


def spent(asset: Asset, asked: Sequence[float]) -> float:
    """What the ledger states of these responses."""
    return asset.spent([sum(divergence(strength, order) for strength in asked) for order in asset.orders])


def excess(asset: Asset, choose: Choice, stated: Callable[[Asset, Sequence[float]], float] = spent) -> float:
    """The expected part of the probability that the stated epsilon, whatever it then was, does not cover."""
    return sum(end.chance * max(0.0, 1 - math.exp(stated(asset, end.asked) - end.loss)) for end in endings(choose))


def until_lucky(seen: Sequence[int]) -> float | None:
    """Goes on while the answers favour the data set, and stops at the first that does not."""
    return None if 0 in seen else 0.7


def raising(seen: Sequence[int]) -> float | None:
    """Asks more sharply the more it has learned, and gently after a setback."""
    return 1.2 if sum(seen) > len(seen) / 2 else 0.2


def stopping_at_the_worst(seen: Sequence[int]) -> float | None:
    """Stops as soon as the loss is far above what was expected."""
    return None if 2 * sum(seen) - len(seen) >= 4 else 0.5


@pytest.mark.parametrize("choose", [until_lucky, raising, stopping_at_the_worst])
@pytest.mark.parametrize("delta", [0.3, 0.1, 0.01])
def test_what_is_stated_as_spent_covers_all_but_half_of_delta_whenever_somebody_stops(choose, delta):
    asset = Asset("tickets", delta, 50.0, 1000)
    assert sum(end.chance for end in endings(choose)) == pytest.approx(1.0)
    assert excess(asset, choose) <= asset.filter_delta


def test_the_mean_loss_of_what_was_asked_would_not_cover_it():
    """A stated epsilon that leaves out the spread of the loss: the enumeration sees that it is too small."""

    def mean_loss(_asset: Asset, asked: Sequence[float]) -> float:
        return sum(strength * math.tanh(strength / 2) for strength in asked)

    assert excess(Asset("tickets", 1e-2, 50.0, 1000), until_lucky, mean_loss) > 1e-2


def test_every_order_is_paid_for_once():
    """The smallest of eight epsilons is chosen after the fact, so each has an eighth of the half of delta."""
    asset = Asset("tickets", 1e-5, 50.0, 1000)
    divergences = accounting.rdp(dpa.GaussianDpEvent(2.0), FILTER_ORDERS).tolist()
    alone = min(map(accounting.renyi_epsilon, FILTER_ORDERS, divergences, [1e-5 / 16] * len(FILTER_ORDERS)))
    assert asset.spent(divergences) == pytest.approx(alone)
