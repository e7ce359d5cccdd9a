"""A charged choice among a few public functions: the one that gives most private units their own label."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.privacy.events import BoundedRangeDpEvent, gumbel_scale
from palimpsest.privacy.queries import gumbel_top_k
from palimpsest.privacy.query import Stored, bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow, select_one_each

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it

Classify: TypeAlias = Callable[[Sequence[str]], Sequence[str]]  # n texts -> n labels


def choice_event(rho: float) -> DpEvent:
    """Return the event of a choice that costs `rho`: its range is 1 / scale. With an infinite rho it is not private."""
    return BoundedRangeDpEvent(math.sqrt(8.0 * rho)) if math.isfinite(rho) else NonPrivateDpEvent()


@bounds_persons
@register_query
@dataclass(frozen=True, eq=False)
class Choice(Stored):
    """A choice of the classifier that is right on most units. Only its index is released, no score.

    One place is drawn with a probability in proportion to exp(score / scale), the exponential mechanism (McSherry and
    Talwar 2007), where the score of a classifier is the number of units that it is right on.

    Guarantee: rho-zCDP for adding or removing one unit, a record or a person with all their rows, whatever the number
    of classifiers. A classifier is fixed before the rows are read: it is public, or made of what was charged before
    (adaptive composition). Of a person with several rows one counts, chosen by a keyed hash of that person's rows
    alone (`one_each`). So a unit that comes raises each score by 0 or 1, and by going it undoes that: monotone,
    L-infinity sensitivity 1. One pick by `gumbel_top_k` is then (1 / (8 scale^2))-zCDP (Cesar and Rogers 2021, Lemma
    3.2), and the scale is sqrt(1 / (8 rho)). What a unit adds does not depend on the other units as far as a classifier
    gives a text its label whatever comes with it. Running time is not covered. With an infinite `rho` the best is taken
    without noise, which is not private: for reference runs.

    Attributes:
        classifiers: at least one, each n texts -> n labels.
        rho: what the choice costs.
        among: for each classifier, the public texts that it learned from and their labels; they identify it.
    """

    classifiers: tuple[Classify, ...]
    rho: float
    among: tuple[tuple[str, ...], ...] = ()
    name: str = "choice"

    def __post_init__(self) -> None:
        """Refuse an invalid cost and a choice among no classifiers."""
        if self.rho != math.inf:
            validate.require_positive(rho=self.rho)
        validate.require_in_range(1, math.inf, number_of_classifiers=len(self.classifiers))

    @property
    def subject(self) -> object:
        """The alternatives of the choice."""
        return self.among

    def event(self) -> DpEvent:
        return choice_event(self.rho)

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> int:
        """Return the index of the chosen classifier. The noise comes from OpenDP's own source."""
        own = select_one_each(rows)
        texts = [row.text for row in own]
        scores = [_count_correct(classify(texts), own) for classify in self.classifiers]
        scale = gumbel_scale(1, self.rho)
        return gumbel_top_k(scores, 1, scale)[0] if scale > 0 else scores.index(max(scores))


def _count_correct(given: Sequence[str], rows: Sequence[PrivateRow]) -> int:
    """Return how many rows are given their own label."""
    return sum(label == row.label for label, row in zip(given, rows, strict=True))
