"""Count queries that any generator may ask, and the noise on counts and selection that they and others draw.

Noise comes from OpenDP's exact samplers, of the operating system's entropy.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.query import Stored, bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow, select_one_each

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource


@bounds_persons
@register_query
@dataclass(frozen=True)
class LabelHistogram(Stored):
    """The number of units, records or persons, that carry each public label, with discrete Gaussian noise.

    Guarantee: a record has one label, and a person with several rows counts for the label of one of them, chosen by a
    keyed hash of that person's rows alone (`one_each`). So adding or removing a unit, a record or a person with all
    their rows, moves one count by one (L2 sensitivity 1), and the answer is 1/(2 sigma^2)-zCDP (Canonne, Kamath,
    Steinke 2020, Theorem 14). `sigma` 0 answers exactly and is not private: for reference runs.

    Attributes:
        labels: the public label list; a unit with another label is not counted.
        sigma: noise scale, in units.
    """

    labels: tuple[str, ...]
    sigma: float
    name: str = "label_histogram"

    def __post_init__(self) -> None:
        """Refuse a label named twice: one record would then move two counts."""
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels must differ from each other")

    @property
    def subject(self) -> object:
        """The labels, in the order of the counts."""
        return self.labels

    def event(self) -> DpEvent:
        return DiscreteGaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> dict[str, int]:
        """Return label -> noisy count, which may be negative. The noise comes from OpenDP's own source."""
        seen = Counter(row.label for row in select_one_each(rows))
        counts = [seen[label] for label in self.labels]
        noisy = discrete_gaussian(counts, self.sigma) if self.sigma > 0 else counts
        return dict(zip(self.labels, noisy, strict=True))


def discrete_gaussian(counts: Sequence[int], sigma: float) -> list[int]:
    """Return counts plus independent discrete Gaussian noise of scale `sigma`.

    Guarantee: 1/(2 sigma^2)-zCDP for adding or removing one unit, where one unit moves one count by one
    (L2 sensitivity 1; Canonne, Kamath, Steinke 2020, Theorem 14). The sampler is exact: no floating point.

    Raises:
        ValueError: if sigma is not positive.
    """
    validate.require_positive(sigma=sigma)
    return list(_gaussian(float(sigma))([int(count) for count in counts]))


def gumbel_top_k(scores: Sequence[int], k: int, scale: float) -> list[int]:
    """Return the indices of the k largest scores after Gumbel noise of `scale`, best first.

    Guarantee: (k / (8 scale^2))-zCDP when adding one unit only raises scores, each by at most one (monotone,
    L-infinity sensitivity 1). The k best come out as they would from k exponential mechanisms, one after the other,
    each over what those before it left (Durfee and Rogers 2019, section 4.1). The privacy losses of one pick's outcomes
    lie within a range of 1 / scale (section 4.2; scores that may fall as well would need twice that), which makes it
    1 / (8 scale^2)-zCDP (Cesar and Rogers 2021, Lemma 3.2), and zCDP adds up. The sampler is exact: it compares noisy
    scores to as many bits as their order takes.

    Raises:
        ValueError: if scale is not positive or k is not between 1 and the number of scores.
    """
    validate.require_positive(scale=scale)
    validate.require_in_range(1, len(scores), k=k)
    return list(_top_k(k, float(scale))([int(score) for score in scores]))


@cache
def _opendp() -> Any:
    """Import OpenDP, which is heavy; a plan only names what noise costs and needs none of it."""
    import opendp.prelude

    opendp.prelude.enable_features("contrib")
    return opendp.prelude


@lru_cache(maxsize=64)
def _gaussian(sigma: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    return dp.m.make_gaussian(*space, scale=sigma)


@lru_cache(maxsize=64)
def _top_k(k: int, scale: float) -> Any:
    """Make noisy maxima with the noise that suits zCDP, which is Gumbel's."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=True)
    return dp.m.make_noisy_top_k(*space, dp.zero_concentrated_divergence(), k=k, scale=scale)
