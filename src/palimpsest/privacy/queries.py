"""Count queries that any generator may ask."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.mechanisms import discrete_gaussian
from palimpsest.privacy.query import Stored, bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow, select_one_each

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it


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
