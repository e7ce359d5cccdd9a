"""What a total costs beside what its charges cost together: Renyi divergences against Gaussian DP.

    python -m bench.filters > table.md

A history is a list of charges, each a run of its own on a fresh asset of delta 1e-5. `together` is the epsilon of all
of them as one composition planned beforehand, by the primary accountant: what letting plans adapt costs is above it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import dp_accounting as dpa

from palimpsest.privacy import accounting
from palimpsest.privacy.events import BoundedRangeDpEvent, DiscreteGaussianDpEvent
from palimpsest.privacy.ledger.records import FILTERS, Asset
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.progress import track

DELTA = 1e-5
ASSET = Asset("a", DELTA, 50.0, 1000)


def calibrated(event: Callable[[float], dpa.DpEvent], target: float) -> dpa.DpEvent:
    """The event at the noise that makes it cost `target` alone."""
    return event(accounting.calibrate_noise(event, target, DELTA))


def training(rate: float, steps: int) -> Callable[[float], dpa.DpEvent]:
    """DP-SGD."""
    return lambda noise: dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)), steps)


def votes(rounds: int) -> Callable[[float], dpa.DpEvent]:
    """Rounds of noisy counts."""
    return lambda sigma: dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma), rounds)


def tokens(rho: float, count: int = 100) -> dpa.DpEvent:
    """Private prediction: so many drawn tokens of bounded range."""
    return dpa.SelfComposedDpEvent(BoundedRangeDpEvent(math.sqrt(8.0 * rho / count)), count)


HISTORIES: dict[str, list[dpa.DpEvent]] = {
    "one Gaussian release of epsilon 1": [calibrated(dpa.GaussianDpEvent, 1.0)],
    "one of epsilon 3": [calibrated(dpa.GaussianDpEvent, 3.0)],
    "ten of epsilon 1": [calibrated(dpa.GaussianDpEvent, 1.0)] * 10,
    "ten rounds of votes, epsilon 1": [calibrated(votes(10), 1.0)],
    "ten rounds of votes, epsilon 3": [calibrated(votes(10), 3.0)],
    "DP-SGD, rate .01, 1,000 steps, epsilon 1": [calibrated(training(0.01, 1000), 1.0)],
    "the same, epsilon 3": [calibrated(training(0.01, 1000), 3.0)],
    "three of them": [calibrated(training(0.01, 1000), 3.0)] * 3,
    "DP-SGD, rate .001, 10,000 steps, epsilon 3": [calibrated(training(0.001, 10_000), 3.0)],
    "DP-SGD, rate .05, 300 steps, epsilon 8": [calibrated(training(0.05, 300), 8.0)],
    "DP-SGD of epsilon 3, then votes of epsilon 1": [calibrated(training(0.01, 1000), 3.0), calibrated(votes(10), 1.0)],
    "100 tokens of rho .02": [tokens(0.02)],
    "100 tokens of rho .15": [tokens(0.15)],
    "DP-SGD of epsilon 3, then those": [calibrated(training(0.01, 1000), 3.0), tokens(0.15)],
    "DP-SGD of epsilon 3, then a choice of rho .005": [calibrated(training(0.01, 1000), 3.0), tokens(0.005, 1)],
    "picks or rounds of which the rho .15 alone is known": [dpa.ZCDpEvent(0.15)],
    "one Laplace count of epsilon 1": [dpa.LaplaceDpEvent(1.0)],
}


def cost(counted: str, history: list[dpa.DpEvent]) -> float:
    """What a fresh asset has spent after a history."""
    wanted = {(f"run {number}", 1): [PlannedQuery("query", event)] for number, event in enumerate(history)}
    return preview(replace(ASSET, filter=counted), [], wanted).spent


def main() -> None:
    """Print the table."""
    print("| history | together | Renyi | over | Gaussian DP | over |\n|---|---|---|---|---|---|")
    for name, history in track(HISTORIES.items(), name="filters", total=len(HISTORIES), private=False):
        together = accounting.epsilon(dpa.ComposedDpEvent(history), DELTA)
        ratios = [f"{spent:.3f} | {spent / together:.3f}" for spent in (cost(one, history) for one in FILTERS)]
        print(f"| {name} | {together:.3f} | {' | '.join(ratios)} |")


if __name__ == "__main__":
    main()
