"""The common base of private vocabularies: keys that nobody listed, each with a noisy count if enough units have it."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.privacy.query import Stored
from palimpsest.privacy.rows import PrivateRow, group_by_person

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it

Key: TypeAlias = tuple[int, str]  # an index in a public list, and words of a private row

MOST_SIGMA = 2.0**20  # up to here noise in whole counts fits into 64 bits
ROUNDED_OFF = 1.0 + 2.0**-40  # more, relative, than roots, products and a quantile lose


class Thresholded(Stored):
    """A query for the keys that many units have. A subclass is a frozen dataclass and says which keys a unit has.

    Guarantee: of a unit, a record or a person with all their rows, `keys` is a set of at most c = `changed` keys and a
    function of its own rows and of public facts alone. So it adds 1 to at most c counts. Of each key that occurs the
    count gets noise N(0, c sigma^2), rounded to a whole number, and comes out where it reaches `threshold`; nothing
    tells of the others. Write P and Q for the law of the answer with a unit and without it. Let P' be the law with it,
    where keys that no other unit has never come out. Then P' and Q are the same function of the noisy counts of the
    same keys, and these counts differ by at most sqrt(c) in L2: one Gaussian mechanism of sensitivity 1 and standard
    deviation sigma, in both orders (Dwork and Roth 2014, Theorem A.1; exact delta: Balle and Wang 2018, Theorem 8), and
    rounding and the threshold are post-processing. P and P' differ only where one of at most c keys with a count of 1
    reaches the threshold, which happens with probability at most delta: their total variation is at most `own_delta`.
    The other order needs Q moved: let Q' be Q where the unit's own keys are counted once each though the unit is not
    there. Q' differs from Q as P from P', and Q' and P are the same function of noisy counts of the same keys, again at
    most sqrt(c) apart. It composes as `LimitedDomain` says (partition selection: Korolova et al. 2009; Desfontaines,
    Voss, Gipson, Mandayam 2022). Running time is not covered, which grows with the number of keys. With sigma 0 all
    keys come out, exactly: for reference runs.

    Attributes:
        most: how much of a unit counts, in the subclass's own terms.
        sigma: standard deviation of the noise, in units of what one unit can change.
        delta: the most that the threshold may leave of the chance that a key of only one unit comes out.
    """

    most: int
    sigma: float
    delta: float

    def __post_init__(self) -> None:
        """Refuse numbers that the argument does not hold for."""
        validate.require_positive(most=self.most)
        validate.require_in_range(0.0, MOST_SIGMA, sigma=self.sigma)
        if self.sigma > 0:
            validate.require_positive(delta=self.delta)
            validate.require_in_range(0.0, 0.5, delta=self.delta)

    def event(self) -> DpEvent:
        return GaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    @property
    def own_delta(self) -> float:
        """The delta that it adds beside its event."""
        return self.delta if self.sigma > 0 else 0.0

    @property
    def changed(self) -> int:
        """The most counts that one unit changes, c."""
        raise NotImplementedError

    @property
    def std(self) -> float:
        """The standard deviation of the noise on each count."""
        return math.sqrt(self.changed) * self.sigma * ROUNDED_OFF

    @property
    def threshold(self) -> int:
        """The least noisy count that comes out; half a unit is room for rounding the noise."""
        return 1 + math.ceil(0.5 - self.std * NormalDist().inv_cdf(self.delta / self.changed) * ROUNDED_OFF)

    def keys(self, unit: Sequence[PrivateRow]) -> set[Key]:
        """Return the keys that a unit counts for, at most `changed`, from its own rows only; private."""
        raise NotImplementedError

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> list[tuple[int, str, int]]:
        """Return (index, words, noisy count) of each key that comes out, the largest count first."""
        counts = Counter(key for unit in group_by_person(rows) for key in self.keys(unit))
        keys = sorted(counts)
        noisy = np.array([counts[key] for key in keys], dtype=np.int64) + noise.whole_normal(len(keys), self.std)
        least = self.threshold if self.sigma > 0 else 1
        kept = [(*key, count) for key, count in zip(keys, noisy.tolist(), strict=True) if count >= least]
        return sorted(kept, key=lambda one: (-one[2], one[:2]))
