"""Words of private texts replaced one by one by public neighbours, which protects words but no record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import regex
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.privacy.query import bounds_persons, register_query
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.segment import WORD

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it

PARTS = 2**53  # a word's law is whole multiples of 1 / PARTS, so that it is drawn from exactly
_MOST_WORDS = 1000  # of a set: up to here rounding to multiples adds less than 1e-9 to epsilon
_WORD = regex.compile(rf"(?V1){WORD}(?:'{WORD})*")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in order, as `segment` finds them, with inner apostrophes.

    >>> words_of("Don't pay £40 to A4-users, he’d said.")
    ["don't", 'pay', '40', 'to', 'a4', 'users', "he'd", 'said']
    """
    return _WORD.findall(text.lower().replace("’", "'"))


@dataclass(frozen=True, eq=False)
class WordSets:
    """Disjoint sets of public words, all of one size k: a word may become any word of its own set.

    Attributes:
        words: shape (sets, k).
        similarity: how alike the words of each set are, in [0, 1], shape (sets, k, k); row x is about word x.
    """

    words: tuple[tuple[str, ...], ...]
    similarity: np.ndarray

    def __post_init__(self) -> None:
        """Refuse sets that overlap or differ in size, and similarities outside [0, 1]: the guarantee would not hold."""
        sizes = {len(own) for own in self.words}
        if len(sizes) != 1 or self.similarity.shape != (len(self.words), *sizes, *sizes):
            raise ValueError(f"sets of sizes {sorted(sizes)} do not fit similarities of {self.similarity.shape!r}")
        validate.require_in_range(2, _MOST_WORDS, size=self.size)
        if not (np.isfinite(self.similarity).all() and 0 <= self.similarity.min() <= self.similarity.max() <= 1):
            raise ValueError("similarity must be between 0 and 1")
        if len({word for own in self.words for word in own}) < len(self.words) * self.size:
            raise ValueError("words must differ from each other")

    @property
    def size(self) -> int:
        """How many words each set has."""
        return len(self.words[0])


@bounds_persons  # its event claims nothing, neither for a person nor for a record
@register_query
@dataclass(frozen=True, eq=False)
class ReplacedWords:
    """The private rows with each word replaced by a draw from its set of public words (CusText, Chen et al. 2023).

    NOT PRIVATE for records, nor for persons: it answers with one row for each private row, with the row's own
    label, and with one word for each of its words that is in the map. How many rows there are, their labels, how many
    such words each has, and from which set each of them comes are copied exactly. Its event says so, and a run for
    release is refused before a row is read.

    Guarantee, for one word and not for a record: let x and x' be words of the same set. Whatever word y comes out,
    P(y | x) <= exp(token_epsilon) P(y | x'), up to a rounding that adds less than 1e-9 to token_epsilon: the
    exponential mechanism (McSherry and Talwar 2007) with weights exp(token_epsilon u / 2), u the similarity, which lies
    in [0, 1] and so differs by at most 1 from x to x'. A text with w words of the map is protected against a change of
    all of them, each within its set, by w times token_epsilon. Between words of different sets nothing is guaranteed:
    the sets are disjoint, so what comes out tells the set of what went in. The map is public.

    Words that are not in the map are left out: copied, they would show the names and numbers that nobody has seen in
    public. Punctuation marks are left out too: there are too few of them to make a set of neighbours, so they could
    only be copied. So every word that leaves has been drawn. Words are joined by spaces. A row with no words left is
    an empty text.

    Attributes:
        sets: the public map.
        token_epsilon: epsilon of one word.
    """

    sets: WordSets
    token_epsilon: float
    name: str = "replaced_words"

    def __post_init__(self) -> None:
        validate.require_positive(token_epsilon=self.token_epsilon)

    @property
    def subject(self) -> object:
        """The public words that are drawn."""
        return self.sets.words

    def event(self) -> DpEvent:
        """Return the event that is not private, whatever token_epsilon is."""
        return NonPrivateDpEvent()

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> list[Record]:
        """Return one row for each private row, in their order, with its label."""
        places = {word: index for index, word in enumerate(word for own in self.sets.words for word in own)}
        bounds = np.cumsum(laws(self.sets.similarity, self.token_epsilon), axis=2)  # (sets, k, k)
        return [Record(self._replace_words(row.text, places, bounds, noise), row.label) for row in rows]

    def _replace_words(self, text: str, places: dict[str, int], bounds: np.ndarray, noise: "NoiseSource") -> str:
        known = [places[word] for word in words_of(text) if word in places]
        group, member = np.divmod(np.array(known, dtype=np.intp), self.sets.size)
        drawn = noise.integers(len(known), PARTS)
        chosen = (bounds[group, member] <= drawn[:, None]).sum(axis=1)  # bounds passed: the last one, PARTS, never is
        return " ".join(self.sets.words[place][word] for place, word in zip(group, chosen, strict=True))


def laws(similarity: np.ndarray, token_epsilon: float) -> np.ndarray:
    """Return how often a word of a set becomes another, in parts of PARTS: int64 (sets, k, k), last axes (from, to).

    In proportion to exp(token_epsilon similarity / 2), each rounded up to a whole part, at least one; the likeliest
    gets what is left. So no word is impossible, and the parts of each word sum to PARTS.

    >>> (laws(np.array([[[1.0, 0.0], [0.0, 1.0]]]), 2 * np.log(3)) / PARTS).round(9).tolist()
    [[[0.75, 0.25], [0.25, 0.75]]]
    """
    weights = np.exp(token_epsilon * (similarity - similarity.max(axis=2, keepdims=True)) / 2.0)
    shares = weights / weights.sum(axis=2, keepdims=True)
    parts = np.maximum(1, np.ceil(shares * PARTS)).astype(np.int64)
    likeliest = shares.argmax(axis=2)[..., None]  # (sets, k, 1)
    rest = PARTS - parts.sum(axis=2, keepdims=True) + np.take_along_axis(parts, likeliest, axis=2)
    np.put_along_axis(parts, likeliest, rest, axis=2)
    return parts
