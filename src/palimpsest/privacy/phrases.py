"""The phrases in the private rows of each label that enough units have, with noisy counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest

from palimpsest.privacy.query import bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.thresholded import Key, Thresholded
from palimpsest.records.phrases import PublicWords


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
