"""Word n-gram overlap of the synthetic texts with members, holdout and public text, and its excess.

Overlap with the training set says nothing by itself: fluent text shares most of its short n-grams with any text of its
kind. The relevant quantity is the *excess* over a holdout that differs from the members by fair coins only.

All counts are exact. N-grams are not hashed: the (n+1)-grams of two corpora are joined on pairs (rank of the shared
n-gram, next word), packed into 64 bits, so only positions that still match are carried from one order to the next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice, zip_longest
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from palimpsest import validate
from palimpsest.audit.runs import Places, match_lengths
from palimpsest.audit.statistics import Bootstrap, Estimate, bootstrap_ratio, permutation_p
from palimpsest.audit.units import Released, Units, plant
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.segment import wording
from palimpsest.shards import map_items

_BITS = 64  # permutations that one machine word carries
_CHUNK = 1 << 16  # n-grams whose bits are unpacked, and texts that are split, at once
_WORDS_AT_ONCE = 1 << 22  # that are looked up
# Synthetic words, and those of another corpus; one part has the most frequent word and all that follow it.
_WORDS_OF_PART, _OTHERS_OF_PART, _MOST_PARTS = 1 << 20, 1 << 23, 32
_SPACES = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}  # what ends a word
_EMPTY = 2**32 - 1  # no word's number
Shared: TypeAlias = tuple[Places, Places]  # where two corpora share n-grams
_FOUND = 0.05  # p below which planted copies are found
_NO_IDS, _NO_SIZES = np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Share(Plain):
    """`count` of `total` synthetic n-gram occurrences also occur in the reference."""

    keys: ClassVar = ("count", "total", "rate")
    count: int
    total: int

    @property
    def rate(self) -> float:
        """The share; 0 where the synthetic texts have no n-gram of this order."""
        return self.count / self.total if self.total else 0.0


@dataclass(frozen=True)
class OrderOverlap(Plain):
    """The overlap for one n."""

    train: Share  # share of synthetic n-grams that occur in a member
    holdout: Share  # the same for the holdout; an n-gram may be in both
    public: Share  # the same for the public corpus
    trained: Share  # the same for all training rows: more than members, so its share is larger for that alone
    excess: Estimate  # train rate - holdout rate, with a bootstrap interval over synthetic rows
    p: Annotated[float, At("excess", "p")]  # how often redrawn coins give at least this excess (one-sided)
    planted: float  # that p of near copies of such records: a large one says that none could be found

    @property
    def judges(self) -> bool:
        """Whether near copies are found, so that finding nothing says something."""
        return self.planted <= _FOUND

    @property
    def shares(self) -> dict[str, Share]:
        """Corpus -> its share."""
        return {"all train": self.trained, "train": self.train, "holdout": self.holdout, "public": self.public}


@dataclass(frozen=True)
class PerReference(Plain):
    """One number for each of the three reference corpora."""

    train: int
    holdout: int
    public: int


@dataclass(frozen=True)
class NgramAudit(PlainFile):
    """Private zone: overlap per order, the longest shared span in words, and rows copied verbatim.

    `unit` is the unit of the coins behind the p values: "record" or "person".
    """

    keys: ClassVar = ("unit", "orders", "longest_span", "verbatim_rows")
    orders: dict[int, OrderOverlap]
    longest_span: PerReference
    verbatim_rows: PerReference
    unit: str


def ngram_audit(released: Released, trained: Iterable[str], orders: Sequence[int], bootstrap: Bootstrap) -> NgramAudit:
    """Measure the overlap of the synthetic texts with texts that were trained on and texts that were not.

    The permutation test redraws which units of members and holdout are members, their numbers fixed: exact for
    independent fair coins, whatever else was trained on, because under the null hypothesis the synthetic texts do
    not depend on the coins. All rows of a person change sides together, as one coin put them there, and an n-gram in
    several rows of a person counts once. The bootstrap interval is over synthetic rows with both references held fixed;
    where the two differ in size the excess contains that difference, the p value does not. The same is done with near
    copies of such records (`plant`), to see whether an excess of this order would show at all.

    Args:
        trained: the texts of all training rows, the members' among them: the published measure ("Differentially Private
            Conditional Text Generation for Synthetic Data", section 6.1). It has no control, so nothing rests on it.
        orders: the n to report, each >= 1.
        bootstrap: seed, and the number of bootstrap samples and of permutations; the latter is rounded
            up to a multiple of 64, and the smallest p is 1 / (permutations + 1).
    """
    audit, planted = _audit(released, trained, orders, bootstrap), plant(released, bootstrap.seed)
    found = _audit(planted, [], orders, bootstrap).orders
    return replace(audit, orders={n: replace(one, planted=found[n].p) for n, one in audit.orders.items()})


def _audit(released: Released, trained: Iterable[str], orders: Sequence[int], bootstrap: Bootstrap) -> NgramAudit:
    validate.require_positive(smallest_order=min(orders))
    vocabulary: dict[str, int] = {}
    texts, pool, public, everyone = (
        WordIds.read(corpus, vocabulary) for corpus in (released.texts, released.private, released.public, trained)
    )
    coins = _Coins.draw(released.units, bootstrap)
    count = _Count(texts, pool, public, everyone, coins, frozenset(orders), parts_of(texts, pool, public, everyone))
    parts = map_items(count, range(count.parts))
    overlap = sum(track(parts, name="n-grams", total=count.parts, private=True), start=_Overlap())
    private, members = released.private, len(released.members)
    references = (private[:members], private[members:], released.public)
    return NgramAudit(
        orders={order: overlap.at_order(order, texts, bootstrap) for order in sorted(set(orders))},
        longest_span=overlap.measure_longest(coins.is_member[pool.row]),
        verbatim_rows=PerReference(*(verbatim_rows(released.texts, rows) for rows in references)),
        unit=released.units.kind,
    )


def verbatim_rows(synthetic: Sequence[str], reference: Sequence[str]) -> int:
    """Synthetic rows with the wording of a reference row; rows without a word do not count."""
    known = {wording(text) for text in reference} - {""}
    return sum(wording(text) in known for text in synthetic)


@dataclass(frozen=True, eq=False)
class WordIds:
    """Texts as one array of word ids."""

    ids: np.ndarray  # word ids of all texts, one after the other; uint32 (words,)
    sizes: np.ndarray  # words of each text; int64 (texts,)

    @classmethod
    def read(cls, texts: Iterable[str], vocabulary: dict[str, int]) -> "WordIds":
        """Split texts into words and number them; new words are added to `vocabulary`."""
        remaining, ids, sizes = iter(texts), [_NO_IDS], [_NO_SIZES]
        while some := list(islice(remaining, _CHUNK)):
            words, lengths = _number_words(some, vocabulary)
            ids.append(words)
            sizes.append(lengths)
        return cls(_concatenate(ids), _concatenate(sizes))

    @property
    def rows(self) -> int:
        """Number of texts."""
        return len(self.sizes)

    @cached_property
    def row(self) -> np.ndarray:
        """The text that each word belongs to; int32 (words,)."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    @cached_property
    def ends(self) -> np.ndarray:
        """Return whether each word is the last of its text; bool (words,)."""
        ends = np.zeros(len(self.ids), dtype=bool)
        ends[self.sizes[self.sizes > 0].cumsum() - 1] = True
        return ends

    @cached_property
    def left(self) -> np.ndarray:
        """Words from each one to the end of its text, itself included; int32 (words,)."""
        left = np.repeat(self.sizes.cumsum(), self.sizes)
        left -= np.arange(len(self.ids))
        return left.astype(np.int32)

    def ngrams_per_row(self, order: int) -> np.ndarray:
        """Number of n-gram occurrences in each text; int64 (texts,)."""
        return np.maximum(self.sizes - (order - 1), 0)


def _concatenate(parts: list[np.ndarray]) -> np.ndarray:
    """Join the arrays of a list; each is freed once it is copied, so that memory never holds two of all."""
    whole, end = np.empty(sum(map(len, parts)), parts[0].dtype), 0
    parts.reverse()
    while parts:
        part = parts.pop()
        whole[end : end + len(part)] = part
        end += len(part)
    return whole


def _number_words(texts: Sequence[str], vocabulary: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Word ids of all texts, uint32 (words,), and the number of words of each text, int64 (texts,)."""
    split = pc.ascii_split_whitespace(pa.array([_space_words(text) for text in texts], pa.string()))
    coded = split.flatten().dictionary_encode()  # an empty text, and a space at an end, make an empty word
    numbers = [
        vocabulary.setdefault(word, len(vocabulary)) if word else _EMPTY for word in coded.dictionary.to_pylist()
    ]
    ids = np.array(numbers, dtype=np.uint32)[coded.indices.to_numpy(zero_copy_only=False)]
    row = np.repeat(np.arange(len(texts)), split.value_lengths().to_numpy())
    kept = ids != _EMPTY
    return ids[kept], np.bincount(row[kept], minlength=len(texts))


def _space_words(text: str) -> str:
    """The text's `words`, with spaces between them; ASCII has no compatibility form and no special case."""
    return text.lower().translate(_SPACES) if text.isascii() else wording(text)


@dataclass(frozen=True, eq=False)
class Matches:
    """Start positions of one corpus' n-grams that the other has too, and the rank of each among all shared ones."""

    corpus: WordIds
    position: np.ndarray  # (matches,)
    gram: np.ndarray  # (matches,) uint64, below 2^32

    @cached_property
    def row(self) -> np.ndarray:
        """The row of the corpus in which each match lies."""
        return self.corpus.row[self.position]

    @property
    def places(self) -> Places:
        """The matches by place."""
        return Places.sort(self.position, self.gram)

    def extend(self, order: int) -> "tuple[np.ndarray, Matches]":
        """Return the matches that one more word follows in the same text, sorted by the exact (n-gram, word) key."""
        keep = np.flatnonzero(~self.corpus.ends[self.position + (order - 1)])
        keys = (self.gram[keep] << np.uint64(32)) | self.corpus.ids[self.position[keep] + order]
        by_key = np.argsort(keys)  # sorted keys keep the look-ups below inside the processor's cache
        keep = keep[by_key]
        return keys[by_key], Matches(self.corpus, self.position[keep], self.gram[keep])

    def rank(self, keys: np.ndarray, shared: np.ndarray) -> "Matches":
        """Return the matches whose key is shared, with their new rank."""
        rank, hit = _look_up(keys, shared)
        return Matches(self.corpus, self.position[hit], rank[hit].astype(np.uint64))


@dataclass(frozen=True, eq=False)
class SharedNgrams:
    """The n-grams that two corpora share, for one n."""

    order: int
    distinct: int  # number of distinct shared n-grams
    first: Matches  # their occurrences in either corpus
    second: Matches

    @property
    def places(self) -> Shared:
        """Where they are in either corpus."""
        return self.first.places, self.second.places


def shared_ngrams(first: WordIds, second: WordIds, part: int = 0, parts: int = 1) -> Iterator[SharedNgrams]:
    """Yield the shared n-grams for n = 1, 2, ... as long as there are any; only those whose first word is in `part`.

    Every n-gram is in the part of its first word, so counts of the parts add up to those of the whole.
    """
    left, right, distinct = _shared_words(first, second, part, parts)
    if not distinct:
        return
    yield SharedNgrams(1, distinct, left, right)
    for order in count(1):
        left_keys, left = left.extend(order)
        right_keys, right = right.extend(order)
        shared = _intersect(left_keys, right_keys)
        if not len(shared):
            return
        left, right = left.rank(left_keys, shared), right.rank(right_keys, shared)
        yield SharedNgrams(order + 1, len(shared), left, right)


def _shared_words(first: WordIds, second: WordIds, part: int, parts: int) -> tuple[Matches, Matches, int]:
    """A part's matches of n = 1, and the number of these words: words are numbered, so nothing needs sorting."""
    size = 1 + max((int(corpus.ids.max()) for corpus in (first, second) if len(corpus.ids)), default=0)
    shared = np.arange(size) % parts == part
    for corpus in (first, second):
        present = np.zeros(size, dtype=bool)
        for start in range(0, len(corpus.ids), _WORDS_AT_ONCE):
            present[corpus.ids[start : start + _WORDS_AT_ONCE]] = True
        shared &= present
    rank = shared.cumsum(dtype=np.uint64) - np.uint64(1)
    places = [_places(corpus.ids, shared) for corpus in (first, second)]
    left, right = (
        Matches(corpus, at, rank[corpus.ids[at]]) for corpus, at in zip((first, second), places, strict=True)
    )
    return left, right, int(shared.sum())


def _places(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the positions of wanted words, in blocks: numpy makes 64-bit numbers of all ids of one look-up."""
    starts = range(0, len(ids), _WORDS_AT_ONCE)
    found = [np.flatnonzero(wanted[ids[start : start + _WORDS_AT_ONCE]]) + start for start in starts]
    return np.concatenate([_NO_SIZES, *found])


def _intersect(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Distinct values of two sorted arrays that are in both."""
    if not len(first) or not len(second):
        return first[:0]
    first, second = (values[np.append(True, values[1:] != values[:-1])] for values in (first, second))
    return first[_look_up(first, second)[1]]


def _look_up(values: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rank of each value among the sorted, non-empty `known`, and whether it is one of them."""
    rank = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return rank, known[rank] == values


@dataclass(frozen=True, eq=False)
class _Coins:
    is_member: np.ndarray  # the real coin of each pooled record's unit; bool (records,)
    # uint64 of shape (words, records); each bit position of each word is one permutation of the coins.
    redrawn: np.ndarray

    @classmethod
    def draw(cls, units: Units, bootstrap: Bootstrap) -> "_Coins":
        rng, real = np.random.default_rng(bootstrap.seed), np.arange(len(units)) < units.members
        redrawn = np.empty((-(-bootstrap.resamples // _BITS), len(real)), dtype=np.uint64)
        for word in redrawn:
            bits = rng.permuted(np.repeat(real[None], _BITS, axis=0), axis=1)
            word[:] = np.packbits(np.ascontiguousarray(bits.T), axis=1).view(np.uint64)[:, 0]
        return cls(real[units.owner], redrawn[:, units.owner])

    def sides(self, shared: SharedNgrams) -> np.ndarray:
        """Return which shared n-grams occur in a member and which in the holdout; shape (2, distinct)."""
        sides = np.zeros((2, shared.distinct), dtype=bool)
        sides[np.where(self.is_member[shared.second.row], 0, 1), shared.second.gram] = True
        return sides


@dataclass(frozen=True, eq=False)
class _Found:
    """Occurrences of synthetic n-grams of one n that a member has, and that the holdout has."""

    train: np.ndarray  # in each synthetic text; int64 (texts,)
    holdout: np.ndarray
    redrawn: np.ndarray  # all of the first less all of the second, under each redrawn set of coins; (permutations,)

    def __add__(self, other: "_Found") -> "_Found":
        return _Found(self.train + other.train, self.holdout + other.holdout, self.redrawn + other.redrawn)


@dataclass(frozen=True, eq=False)
class _Overlap:
    """The overlap of a set of n-grams; overlaps of disjoint sets can be added."""

    found: Mapping[int, _Found] = field(default_factory=dict)  # n -> of what was asked, where any is found
    # The longest n-gram that a member has, that the holdout has and that the public corpus has, of at most `last`.
    longest: tuple[int, ...] = (0, 0, 0)
    last: int = 0  # words of the longest n-gram that was counted
    # Where the longest ones are shared with members and holdout, and with the public corpus; of each part.
    private_places: tuple[Shared, ...] = ()
    public_places: tuple[Shared, ...] = ()
    public: tuple[int, ...] = ()  # for n = 1, 2, ..., occurrences that the public corpus has; no more where none is
    trained: tuple[int, ...] = ()

    def __add__(self, other: "_Overlap") -> "_Overlap":
        found, theirs = dict(self.found), other.found
        found |= {order: found[order] + one if order in found else one for order, one in theirs.items()}
        longest = tuple(map(max, self.longest, other.longest))
        return _Overlap(
            found, longest, max(self.last, other.last), self.private_places + other.private_places,
            self.public_places + other.public_places, _add_counts(self.public, other.public),
            _add_counts(self.trained, other.trained),
        )  # fmt: skip

    def measure_longest(self, is_member: np.ndarray) -> PerReference:
        """Return the longest n-gram of any length that each corpus has; `is_member`: of each pooled word."""
        first, second = _join_shared(self.private_places)
        sides = (is_member[second.position], ~is_member[second.position])
        seconds = [second.select(side) for side in sides]
        pairs = [*((first, one) for one in seconds), _join_shared(self.public_places)]
        runs = [int(match_lengths(*pair).max(initial=0)) for pair in pairs]
        return PerReference(
            *(run + self.last - 1 if run else short for run, short in zip(runs, self.longest, strict=True))
        )

    def at_order(self, order: int, texts: WordIds, bootstrap: Bootstrap) -> OrderOverlap:
        """The overlap for one n."""
        per_row = texts.ngrams_per_row(order)
        nothing = Share(0, int(per_row.sum()))
        public, trained = (
            replace(nothing, count=counts[order - 1]) if order <= len(counts) else nothing
            for counts in (self.public, self.trained)
        )
        if order not in self.found:
            return OrderOverlap(nothing, nothing, public, trained, Estimate(0.0, 0.0, 0.0), 1.0, 1.0)
        found = self.found[order]
        train, holdout = (replace(nothing, count=int(side.sum())) for side in (found.train, found.holdout))
        excess = _excess(found.train - found.holdout, per_row, bootstrap)
        return OrderOverlap(
            train, holdout, public, trained, excess, permutation_p(train.count - holdout.count, found.redrawn), 1.0
        )


@dataclass(frozen=True, eq=False)
class _Count:
    """Counts the synthetic n-grams of one part: those whose first word is in it."""

    texts: WordIds
    pool: WordIds  # members, then the holdout
    public: WordIds
    trained: WordIds
    coins: _Coins
    orders: frozenset[int]
    parts: int

    def __call__(self, part: int) -> _Overlap:
        found, longest, last, private = dict[int, _Found](), [0, 0], max(2, *self.orders), tuple[Shared, ...]()
        for shared in islice(shared_ngrams(self.texts, self.pool, part, self.parts), last):
            sides = self.coins.sides(shared)
            longest = [shared.order if side.any() else longest[which] for which, side in enumerate(sides)]
            private = (shared.places,) if shared.order == last else ()
            if shared.order in self.orders:
                train, holdout = (_occurrences(self.texts, shared, side) for side in sides)
                found[shared.order] = _Found(train, holdout, _redrawn_excess(shared, self.coins.redrawn))
        public, places = self._count_occurring(self.public, part, last)
        trained, _ = self._count_occurring(self.trained, part, last)
        return _Overlap(found, (*longest, len(public)), last, private, places, public, trained)

    def _count_occurring(self, corpus: WordIds, part: int, last: int) -> tuple[tuple[int, ...], tuple[Shared, ...]]:
        """Return for n = 1, 2, ... how many n-grams the corpus has, and the places of the last of these n."""
        counts, places = list[int](), tuple[Shared, ...]()
        for shared in islice(shared_ngrams(self.texts, corpus, part, self.parts), last):
            counts.append(len(shared.first.gram))
            places = (shared.places,) if shared.order == last else ()
        return tuple(counts), places


def _join_shared(parts: Sequence[Shared]) -> Shared:
    """Join what the parts share; the n-grams of a part are numbered alike in both corpora."""
    if not parts:
        return Places(_NO_SIZES, _NO_SIZES), Places(_NO_SIZES, _NO_SIZES)
    return Places.join([first for first, _ in parts]), Places.join([second for _, second in parts])


def parts_of(texts: WordIds, *others: WordIds) -> int:
    """Return a number of parts that bounds the memory at little cost; counts do not depend on it."""
    longest = max(len(corpus.ids) for corpus in others)
    return min(_MOST_PARTS, 1 + max(len(texts.ids) // _WORDS_OF_PART, longest // _OTHERS_OF_PART))


def _add_counts(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip_longest(first, second, fillvalue=0))


def _excess(difference: np.ndarray, per_row: np.ndarray, bootstrap: Bootstrap) -> Estimate:
    """Sum of differences over sum of n-grams, both per synthetic row, with its bootstrap interval."""
    if not difference.any():
        return Estimate(0.0, 0.0, 0.0)
    return Estimate(float(difference.sum() / per_row.sum()), *bootstrap_ratio(difference, per_row, bootstrap))


def _occurrences(texts: WordIds, shared: SharedNgrams, counted: np.ndarray) -> np.ndarray:
    """Occurrences of the counted n-grams in each synthetic text; int64 (texts,)."""
    return np.bincount(shared.first.row[counted[shared.first.gram]], minlength=texts.rows)


def _redrawn_excess(shared: SharedNgrams, redrawn: np.ndarray) -> np.ndarray:
    """The excess count under each redrawn set of coins; shape (permutations,)."""
    order = np.argsort(shared.second.gram, kind="stable")
    record, gram = shared.second.row[order], shared.second.gram[order]
    starts = np.flatnonzero(np.append(True, gram[1:] != gram[:-1]))
    weight = np.bincount(shared.first.gram.astype(np.int64), minlength=shared.distinct)
    return np.concatenate([_weighted_excess(bits[record], starts, weight) for bits in redrawn])


def _weighted_excess(bits: np.ndarray, starts: np.ndarray, weight: np.ndarray) -> np.ndarray:
    any_member = np.bitwise_or.reduceat(bits, starts)  # (distinct,), one bit per permutation
    any_holdout = ~np.bitwise_and.reduceat(bits, starts)
    return _weighted_bits(weight, any_member) - _weighted_bits(weight, any_holdout)


def _weighted_bits(weight: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Sum of the weights at which each of the 64 bits is set; shape (64,)."""
    total = np.zeros(_BITS)
    for start in range(0, len(bits), _CHUNK):
        unpacked = np.unpackbits(bits[start : start + _CHUNK].view(np.uint8).reshape(-1, 8), axis=1)  # (chunk, 64)
        total += weight[start : start + _CHUNK].astype(np.float64) @ unpacked
    return total
