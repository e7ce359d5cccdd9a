"""Two accountants on the same plans: privacy-loss distributions, and the Fourier one that shares no code with them.

    python bench/accountants.py > table.md

The rows are events of the methods' own plans; the noise multiplier is the one at which the Fourier accountant's upper
end is the target. Renyi DP stands beside them; the run ends with an error if it is ever the smaller one. `off` is that
upper end over the stated epsilon, less one; its time is CPU time of one thread for one call, nothing kept from before.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dp_accounting as dpa
from scipy.optimize import brentq

from palimpsest.methods.shared.rounds import rounds_event
from palimpsest.privacy import accounting, fourier
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


def main() -> None:
    """Print the table."""
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


def calibrated(row: Row, target: float) -> float:
    """The noise at which the Fourier accountant's upper end is the target; its search is the faster one."""

    def excess(log_noise: float) -> float:
        found = fourier.epsilon(row.event(math.exp(log_noise)), row.delta)
        assert found is not None
        return found.high - target

    return math.exp(brentq(excess, math.log(0.1), math.log(1000.0), xtol=1e-3))


def show(row: Row, target: float) -> tuple[float, float]:
    """Print one line; how far the accountants are apart, and how long the second one took."""
    noise = calibrated(row, target)
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


if __name__ == "__main__":
    main()
