"""What a search over m points costs: all of them charged and one chosen, or a random number of them and the best kept.

    python -m bench.repeats

No row is read: these are prices. The second way is a theorem of Liu and Talwar (2019) and of Papernot and Steinke
(2022, Theorem 2), which this project does not run. A score on private rows then belongs to each run and is charged in
it; here it is left out, which favours that way.

Feeds docs/howto/sweep.md. It needs no folder.
"""

import dp_accounting as dpa
from dp_accounting.rdp import RdpAccountant

from palimpsest.privacy.accounting import ORDERS, calibrate_noise, epsilon
from palimpsest.privacy.choice import choice_event
from palimpsest.privacy.events import gumbel_rho

DELTA, EACH, SCALE = 1e-5, 1.0, 5.0
POINTS = (3, 10, 30)


def all_charged(event: dpa.DpEvent, points: int, scale: float, delta: float) -> float:
    """Epsilon of so many runs of `event` and one choice of that noise scale (`privacy.choice`), as a receipt has it."""
    runs = dpa.SelfComposedDpEvent(event, points)
    return epsilon(dpa.ComposedDpEvent([runs, choice_event(gumbel_rho(1, scale))]), delta)


def best_of_random(event: dpa.DpEvent, mean: float, delta: float) -> float:
    """Epsilon of a geometric number of runs with this mean, of which the best is told and nothing else.

    By Renyi divergences at the same orders (Papernot and Steinke 2022, Theorem 2 with eta = 1). How many ran stays
    secret, and so do all runs but one.
    """
    accountant = RdpAccountant(orders=ORDERS)
    accountant.compose(dpa.dp_event.RepeatAndSelectDpEvent(event, mean, 1.0))
    return float(accountant.get_epsilon(delta))


def main() -> None:
    """Print both as a table."""
    sigma = calibrate_noise(dpa.GaussianDpEvent, EACH, DELTA)
    event = dpa.GaussianDpEvent(sigma)
    print("| points | all charged, and the choice | a random number, the best kept |\n|---|---|---|")
    for points in POINTS:
        charged = all_charged(event, points, SCALE, DELTA)
        print(f"| {points} | {charged:.2f} | {best_of_random(event, points, DELTA):.2f} |")


if __name__ == "__main__":
    main()
