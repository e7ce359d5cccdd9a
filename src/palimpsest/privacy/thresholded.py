"""Private vocabularies: keys that nobody listed, each with a noisy count if enough units have it.

Keys are phrases in the rows of each label, values in the sentences of statements, and combinations of such values.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.privacy.query import Stored, bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow, group_by_person, sort_unit
from palimpsest.records.phrases import PublicWords
from palimpsest.records.statements import Attribute, Values, statements

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource

Key: TypeAlias = tuple[int, str]  # an index in a public list, and words of a private row

_MOST_SIGMA = 2.0**20  # up to here noise in whole counts fits into 64 bits
_ROUNDED_OFF = 1.0 + 2.0**-40  # more, relative, than roots, products and a quantile lose
One = TypeVar("One")
Told: TypeAlias = tuple[str, Values]  # the label of a row, and the values that a sentence of it states

MOST_CELLS = 2**20  # combinations of values, over all labels, that noise is drawn for


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
        validate.require_in_range(0.0, _MOST_SIGMA, sigma=self.sigma)
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
        return math.sqrt(self.changed) * self.sigma * _ROUNDED_OFF

    @property
    def threshold(self) -> int:
        """The least noisy count that comes out; half a unit is room for rounding the noise."""
        return 1 + math.ceil(0.5 - self.std * NormalDist().inv_cdf(self.delta / self.changed) * _ROUNDED_OFF)

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


@bounds_persons
@register_query
@dataclass(frozen=True, eq=False)
class KeyPhrases(Thresholded):
    """The phrases that many units have under a label, each with a noisy count: a vocabulary nobody had to list.

    Guarantee: for adding or removing one unit, a record or a person with all their rows. A unit's keys are at most
    c = `most` different pairs of a label and a phrase: of those in its rows the ones with the most usual words in
    public texts, ties by phrase and label. They are a function of its own rows and of public facts, in whatever order
    the rows are. The rest is the argument of `Thresholded`: one Gaussian mechanism of noise sigma, and `own_delta`
    beside it.

    Attributes:
        labels: the public ones; a row of another label counts nowhere. ("",) where the task has none.
        words: statistics of words in public texts.
        most: how many phrases of a unit count, over all its labels.
        sigma: standard deviation of the noise, in units of what one unit can change.
        delta: the most that the threshold may leave of the chance that a phrase of only one unit comes out.
    """

    labels: tuple[str, ...]
    words: PublicWords
    most: int
    sigma: float
    delta: float
    name: str = "key_phrases"

    @property
    def subject(self) -> object:
        """The labels, whose indices come out with the phrases."""
        return self.labels

    @property
    def changed(self) -> int:
        return self.most

    def keys(self, unit: Sequence[PrivateRow]) -> set[Key]:
        """Return the (index of the label, phrase) pairs that count."""
        own = {
            (self.labels.index(label), phrase)
            for row in unit
            if (label := row.label or "") in self.labels
            for phrase in self.words.phrases(row.text)
        }
        return set(nsmallest(self.most, own, key=lambda key: (self.words.surprise(key[1]), key[1], key[0])))


@bounds_persons
@register_query
@dataclass(frozen=True)
class StatementPhrases(Thresholded):
    """The values of open attributes that many units state, each with a noisy count: a vocabulary nobody had to list.

    Guarantee: a unit's keys are the open values in at most `most` different statements of its own (`_stated_values`),
    so of a record, or of a person with all their rows, at most c = `most` times the number of open attributes. The rest
    is the argument of `Thresholded`: one Gaussian mechanism of noise sigma, and `own_delta` beside it.

    Attributes:
        attributes: public; those with a pattern are open.
        labels: the public ones; a row of another label states nothing. ("",) where the task has none.
        most: statements of a unit that count.
        sigma: standard deviation of the noise, in units of what one unit can change.
        delta: the most that the threshold may leave of the chance that a value of only one unit comes out.
    """

    attributes: tuple[Attribute, ...]
    labels: tuple[str, ...]
    most: int
    sigma: float
    delta: float
    name: str = "statement_phrases"

    @property
    def subject(self) -> object:
        """The attributes, whose indices come out with the values."""
        return self.labels, tuple(attribute.name for attribute in self.attributes)

    @property
    def changed(self) -> int:
        """The most counts that one unit changes, c."""
        return self.most * len(_open_places(self.attributes))

    def keys(self, unit: Sequence[PrivateRow]) -> set[Key]:
        """Return the (index of the attribute, value) pairs that count."""
        told = _take_distinct(self.most, _stated_values(unit, self.attributes, self.labels))
        return {(place, values[place]) for _, values in told for place in _open_places(self.attributes)}


@bounds_persons
@register_query
@dataclass(frozen=True)
class StatementCounts(Stored):
    """The number of units that state each combination of values, in all and by label: two noisy tables, one release.

    Guarantee: of a unit, a record or a person with all their rows, at most `most` different statements count, a
    function of its rows alone (`_stated_values`). In each table it adds 1 to each cell that they lie in, so to at most
    `most` cells. The cells of the first table get noise of variance most sigma^2 / (1 - label_share), those by label
    most sigma^2 / label_share. Divided by their standard deviations, what a unit adds to both tables together has a
    squared length of at most (1 - label_share + label_share) / sigma^2: one Gaussian mechanism of sensitivity 1 and
    standard deviation sigma (Dwork and Roth 2014, Theorem A.1; exact delta: Balle and Wang 2018, Theorem 8). Which
    cells there are is public, or follows from answers before. Noise is rounded to whole numbers, which, as counts are
    whole, is rounding the noisy count, ties aside (post-processing). Running time is not covered. With sigma 0 the
    answer is exact and not private: for reference runs.

    Attributes:
        attributes: public.
        values: the values of each attribute that count, public or answered before; a statement with another value is
            not counted.
        labels: the public ones; a row of another label states nothing. ("",) where the task has none.
        most: statements of a unit that count.
        sigma: standard deviation of the noise, in units of what one unit can change.
        label_share: the part of the cost that the table by label takes; 0 leaves that table out.
    """

    attributes: tuple[Attribute, ...]
    values: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    most: int
    sigma: float
    label_share: float
    name: str = "statement_counts"

    def __post_init__(self) -> None:
        """Refuse numbers that the argument does not hold for, and names that would count a statement twice."""
        validate.require_positive(most=self.most)
        validate.require_in_range(0.0, _MOST_SIGMA, sigma=self.sigma)
        validate.require_in_range(0.0, 0.99, label_share=self.label_share)
        validate.require_in_range(0, MOST_CELLS, cells=math.prod(self.shape))
        for names in (self.labels, *self.values):
            if len(set(names)) < len(names):
                raise ValueError("labels, and the values of an attribute, must differ from each other")

    @property
    def shape(self) -> tuple[int, ...]:
        """(labels, values of the first attribute, ...)."""
        return len(self.labels), *(len(own) for own in self.values)

    @property
    def subject(self) -> object:
        """The cells of both tables."""
        return self.labels, self.values, tuple(attribute.name for attribute in self.attributes)

    def event(self) -> DpEvent:
        return GaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    @property
    def stds(self) -> tuple[float, float]:
        """The noise's standard deviation on each count of the first table, and of that by label (0 without one)."""
        whole = math.sqrt(self.most) * self.sigma * _ROUNDED_OFF
        by_label = whole / math.sqrt(self.label_share) if self.label_share else 0.0
        return whole / math.sqrt(1.0 - self.label_share), by_label

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> list[list[int]]:
        """Return noisy counts, each table in one list, the last attribute running fastest; that by label is second."""
        cells, by_label = self._count_cells(rows)
        tables = zip((cells.reshape(-1), by_label.reshape(-1)), self.stds, strict=True)
        return [(table + noise.whole_normal(table.size, std)).tolist() for table, std in tables]

    def _count_cells(self, rows: Sequence[PrivateRow]) -> tuple[np.ndarray, np.ndarray]:
        """Return both tables before their noise, private: int64, of `shape` without its labels, and with them."""
        places = [{value: place for place, value in enumerate(own)} for own in (self.labels, *self.values)]
        by_label = np.zeros(self.shape if self.label_share else 0, dtype=np.int64)
        cells = np.zeros(self.shape[1:], dtype=np.int64)
        for unit in group_by_person(rows):
            known = (
                tuple(place[value] for place, value in zip(places, (label, *values), strict=True))
                for label, values in _stated_values(unit, self.attributes, self.labels)
                if all(value in place for place, value in zip(places[1:], values, strict=True))
            )
            own = _take_distinct(self.most, known)
            for cell in own if self.label_share else ():
                by_label[cell] += 1
            for cell in {cell[1:] for cell in own}:
                cells[cell] += 1
        return cells, by_label


def _open_places(attributes: Sequence[Attribute]) -> list[int]:
    return [place for place, attribute in enumerate(attributes) if attribute.pattern is not None]


def _stated_values(
    unit: Sequence[PrivateRow], attributes: Sequence[Attribute], labels: Sequence[str]
) -> Iterator[Told]:
    """Yield what a unit states, from its own rows only: label and values of each statement, some perhaps twice."""
    for row in sort_unit(unit):
        if (label := row.label or "") in labels:
            yield from ((label, statement.values) for statement in statements(row.text, attributes))


def _take_distinct(most: int, told: Iterator[One]) -> list[One]:
    """Return the first `most` distinct ones."""
    return list(islice(dict.fromkeys(told), most))
