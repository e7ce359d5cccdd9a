"""Why private prediction draws a token and does not add noise to its probabilities (Amin et al. 2024, appendix E).

    python -m bench.token_noise

The standard deviation, on each probability of the averaged distribution, at which Gaussian noise has the privacy of one
drawn token, by three analyses: the classic one, the exact one of Balle and Wang 2018 (theorem 8), and zero-concentrated
privacy. The L2 sensitivity of an average of s distributions is taken as sqrt(2) / s.

Feeds docs/lab/methods.md. It needs no folder.
"""

import math

from palimpsest.prediction.mechanism import FixedClipping
from palimpsest.privacy.accounting import gdp_sigma

SETTINGS = tuple(
    (clip, temperature, size) for clip, temperature in ((10.0, 2.0), (10.0, 1.5)) for size in (127, 255, 1023)
)
DELTA = 1e-6


def gaussian() -> list[str]:
    """The table of equally private noise."""
    heads = ["| c | temperature | s | epsilon of a token | classic | exact | zCDP |", "|---" * 7 + "|"]
    return heads + [equal_noise(*settings) for settings in SETTINGS]


def equal_noise(clip: float, temperature: float, size: int) -> str:
    """One line: drawing a token is 2 c / (s temperature)-DP, and its rho is the mechanism's."""
    mechanism, sensitivity = FixedClipping(clip, temperature, size), math.sqrt(2.0) / size
    epsilon = 2.0 * mechanism.sensitivity / temperature
    classic = sensitivity * math.sqrt(2.0 * math.log(1.25 / DELTA)) / epsilon
    exact = gdp_sigma(epsilon, DELTA, sensitivity=sensitivity)
    concentrated = sensitivity / math.sqrt(2.0 * mechanism.rho)
    return f"| {clip:g} | {temperature:g} | {size} | {epsilon:.4f} | {classic:.3f} | {exact:.3f} | {concentrated:.3f} |"


if __name__ == "__main__":
    print("\n".join(gaussian()))
