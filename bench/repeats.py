"""What a search over some points costs: all of them charged, and one chosen.

    python -m bench.repeats

No row is read: these are prices.

Feeds docs/howto/sweep.md. It needs no folder.
"""

import dp_accounting as dpa

from palimpsest.privacy.accounting import calibrate_noise, epsilon
from palimpsest.privacy.choice import choice_event
from palimpsest.privacy.events import gumbel_rho

DELTA, EACH, SCALE = 1e-5, 1.0, 5.0
POINTS = (3, 10, 30)


def all_charged(event: dpa.DpEvent, points: int, scale: float, delta: float) -> float:
    """Epsilon of so many runs of `event` and one choice of that noise scale (`privacy.choice`), as a receipt has it."""
    runs = dpa.SelfComposedDpEvent(event, points)
    return epsilon(dpa.ComposedDpEvent([runs, choice_event(gumbel_rho(1, scale))]), delta)


def main() -> None:
    """Print them as a table."""
    sigma = calibrate_noise(dpa.GaussianDpEvent, EACH, DELTA)
    event = dpa.GaussianDpEvent(sigma)
    print("| points | all charged, and the choice |\n|---|---|")
    for points in POINTS:
        print(f"| {points} | {all_charged(event, points, SCALE, DELTA):.2f} |")


if __name__ == "__main__":
    main()
