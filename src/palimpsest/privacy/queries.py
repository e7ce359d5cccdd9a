"""Count queries that any generator may ask."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dp_accounting import DpEvent, NonPrivateDpEvent

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.mechanisms import discrete_gaussian
from palimpsest.privacy.query import registered
from palimpsest.privacy.rows import PrivateRow


@registered
@dataclass(frozen=True)
class LabelHistogram:
    """How many rows carry each public label, with discrete Gaussian noise.

    Guarantee: one record has one label, so adding or removing it moves one count by one (L2 sensitivity 1); the answer
    is 1/(2 sigma^2)-zCDP. `sigma` 0 answers exactly and is not private: for reference runs.

    Attributes:
        labels: the public label list; rows with another label are not counted.
        sigma: noise scale, in rows.
    """

    labels: tuple[str, ...]
    sigma: float
    name: str = "label_histogram"

    def __post_init__(self) -> None:
        """Refuse a label named twice: one record would then move two counts."""
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels must differ from each other")

    @property
    def stores_answer(self) -> bool:
        """A noisy answer is kept for a retry, which then costs nothing; an exact one is not private and is not kept."""
        return self.sigma > 0

    def event(self) -> DpEvent:
        """A discrete Gaussian, or a non-private event where sigma is 0."""
        return DiscreteGaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> dict[str, int]:
        """Label -> noisy count; may be negative. The noise comes from OpenDP's own source."""
        seen = Counter(row.label for row in rows)
        counts = [seen[label] for label in self.labels]
        noisy = discrete_gaussian(counts, self.sigma) if self.sigma > 0 else counts
        return dict(zip(self.labels, noisy, strict=True))
