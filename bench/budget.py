"""What a budget buys: two accountants on the same plans, and what a total costs beside its charges together.

    python -m bench.budget accountants    # feeds docs/results/budget.md; reads no folder
    python -m bench.budget filters        # the same

`accountants`: privacy-loss distributions beside the Fourier accountant that shares no code with them. The rows are
events of the methods' own plans; the noise multiplier is the one at which the Fourier accountant's upper end is the
target. Renyi DP stands beside them; the run ends with an error if it is ever the smaller one. `off` is that upper end
over the stated epsilon, less one; its time is CPU time of one thread for one call, nothing kept from before.

`filters`: Renyi divergences against Gaussian DP. A history is a list of charges, each a run of its own on a fresh asset
of delta 1e-5. `together` is the epsilon of all of them as one composition planned beforehand, by the primary
accountant: what letting plans adapt costs is above it.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import dp_accounting as dpa
from scipy.optimize import brentq

from palimpsest.methods.shared.rounds import rounds_event
from palimpsest.privacy import accounting, fourier
from palimpsest.privacy.events import BoundedRangeDpEvent, DiscreteGaussianDpEvent
from palimpsest.privacy.ledger.records import FILTERS, Asset
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.progress import track
from palimpsest.training.plan import TrainingPlan

TARGETS = (0.1, 1.0, 3.0, 8.0, 20.0)
HISTOGRAM = LabelHistogram(("a", "b"), 10.0).event()


@dataclass(frozen=True)
class Row:
    """What is charged, as a function of the noise that is looked for."""

    name: str
    delta: float
    event: Callable[[float], dpa.DpEvent]


def training(rate: float, steps: int, losses: int = 1) -> Callable[[float], dpa.DpEvent]:
    """DP-SGD's event, two losses clipped separately where there are two."""
    return lambda noise: TrainingPlan(rate, steps, 1.0, noise, 1.0, "separate", losses).event()


def beside(fixed: dpa.DpEvent, event: Callable[[float], dpa.DpEvent]) -> Callable[[float], dpa.DpEvent]:
    """The event with another, fixed one before it."""
    return lambda noise: dpa.ComposedDpEvent([fixed, event(noise)])


ROWS = (
    Row("language model, rate .01, 1,000 steps", 1e-5, training(0.01, 1000)),
    Row("language model, rate .001, 10,000 steps", 1e-6, training(0.001, 10_000)),
    Row("language model, rate .3, 100 steps", 1e-6, training(0.3, 100)),
    Row("language model, two losses, rate .0135, 296 steps", 1e-5, training(0.0135, 296, losses=2)),
    Row("histogram of sigma 10, then a language model", 1e-5, beside(HISTOGRAM, training(0.01, 500))),
    Row("ten rounds of votes", 1e-6, lambda sigma: rounds_event(sigma, 10)),
    Row("histogram of sigma 10, then 20 rounds of votes", 1e-5, beside(HISTOGRAM, lambda s: rounds_event(s, 20))),
    Row("class means of sigma 20, then one vote", 1e-5, beside(dpa.GaussianDpEvent(20.0), dpa.GaussianDpEvent)),
    Row("few-shot prompts, rate .02, 100 tokens", 1e-5, training(0.02, 100)),
)


def accountants() -> None:
    """Print the table of both accountants."""
    print("| what is charged | delta | noise | Fourier: low | high | stated (PLD) | RDP | off | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    worst, slowest = 0.0, 0.0
    for row, target in track(cases(), name="accountants", total=len(ROWS) * len(TARGETS), private=False, unit="row"):
        off, seconds = show(row, target)
        worst, slowest = max(worst, abs(off)), max(slowest, seconds)
    print(f"\nlargest difference {worst:.2%}, slowest {slowest:.2f} s")


def cases() -> Iterator[tuple[Row, float]]:
    """Each row at each target that its fixed part leaves room for."""
    for row in ROWS:
        fixed = accounting.epsilon(row.event(1e5), row.delta)
        yield from ((row, target) for target in TARGETS if target > 1.2 * fixed)


def calibrated_noise(row: Row, target: float) -> float:
    """The noise at which the Fourier accountant's upper end is the target; its search is the faster one."""

    def excess(log_noise: float) -> float:
        found = fourier.epsilon(row.event(math.exp(log_noise)), row.delta)
        assert found is not None
        return found.high - target

    return math.exp(brentq(excess, math.log(0.1), math.log(1000.0), xtol=1e-3))


def show(row: Row, target: float) -> tuple[float, float]:
    """Print one line; how far the accountants are apart, and how long the second one took."""
    noise = calibrated_noise(row, target)
    event = row.event(noise)
    fourier._epsilon.cache_clear()  # noqa: SLF001
    start = time.process_time()
    found = fourier.epsilon(event, row.delta)
    seconds = time.process_time() - start
    assert found is not None
    stated, renyi = accounting.epsilon(event, row.delta), accounting.epsilon(event, row.delta, "rdp")
    if not (found.low <= stated and found.high <= renyi and math.isfinite(found.high)):
        raise SystemExit(f"the accountants contradict each other: {row.name}, {found}, {stated}, {renyi}")
    off = found.high / stated - 1.0
    values = f"{found.low:.4g} | {found.high:.4g} | {stated:.4g} | {renyi:.4g} | {off:+.2%} | {seconds:.2f}"
    print(f"| {row.name} | {row.delta:g} | {noise:.4g} | {values} |", flush=True)
    return off, seconds


DELTA = 1e-5
ASSET = Asset("a", DELTA, 50.0, 1000)


def calibrated(event: Callable[[float], dpa.DpEvent], target: float) -> dpa.DpEvent:
    """The event at the noise that makes it cost `target` alone."""
    return event(accounting.calibrate_noise(event, target, DELTA))


def votes(rounds: int) -> Callable[[float], dpa.DpEvent]:
    """Rounds of noisy counts."""
    return lambda sigma: dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma), rounds)


def tokens(rho: float, count: int = 100) -> dpa.DpEvent:
    """Private prediction: so many drawn tokens of bounded range."""
    return dpa.SelfComposedDpEvent(BoundedRangeDpEvent(math.sqrt(8.0 * rho / count)), count)


def histories() -> Mapping[str, Sequence[dpa.DpEvent]]:
    """What is charged one after the other; finding the noise takes some seconds."""
    return {
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
        "DP-SGD of epsilon 3, then votes of epsilon 1": [
            calibrated(training(0.01, 1000), 3.0),
            calibrated(votes(10), 1.0),
        ],
        "100 tokens of rho .02": [tokens(0.02)],
        "100 tokens of rho .15": [tokens(0.15)],
        "DP-SGD of epsilon 3, then those": [calibrated(training(0.01, 1000), 3.0), tokens(0.15)],
        "DP-SGD of epsilon 3, then a choice of rho .005": [calibrated(training(0.01, 1000), 3.0), tokens(0.005, 1)],
        "picks or rounds of which the rho .15 alone is known": [dpa.ZCDpEvent(0.15)],
        "one Laplace count of epsilon 1": [dpa.LaplaceDpEvent(1.0)],
    }


def cost(counted: str, history: Sequence[dpa.DpEvent]) -> float:
    """What a fresh asset has spent after a history."""
    wanted = {(f"run {number}", 1): [PlannedQuery("query", event)] for number, event in enumerate(history)}
    return preview(replace(ASSET, filter=counted), [], wanted).spent


def filters() -> None:
    """Print the table of totals."""
    print("| history | together | Renyi | over | Gaussian DP | over |\n|---|---|---|---|---|---|")
    known = histories()
    for name, history in track(known.items(), name="filters", total=len(known), private=False):
        together = accounting.epsilon(dpa.ComposedDpEvent(list(history)), DELTA)
        ratios = [f"{spent:.3f} | {spent / together:.3f}" for spent in (cost(one, history) for one in FILTERS)]
        print(f"| {name} | {together:.3f} | {' | '.join(ratios)} |")


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("accountants", "filters"))
    {"accountants": accountants, "filters": filters}[parser.parse_args().part]()


if __name__ == "__main__":
    main()
