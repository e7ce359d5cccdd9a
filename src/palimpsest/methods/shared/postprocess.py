"""Filters drawn texts: a chain of named filters, each with a count of the texts it removed.

All of it is post-processing, and free: a filter reads synthetic texts (output of a private mechanism), scores of them
by models that are public or were themselves fitted privately, and public settings. So what is kept, and the counts,
cost no privacy. Whether a text is too close to a *private* row is a query on private data, not a filter: it would
have to be planned and charged, and no filter here takes a private row.

Guarantee: a chain is a function of its settings and of the sequence of candidates it was given: how the sequence was
cut into calls does not matter, so a run that stopped is resumed by giving a new chain the same candidates again.
"""

import random
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from math import inf, isnan
from typing import Any, Protocol

import numpy as np

from palimpsest import validate
from palimpsest.errors import DataError, ParamsError
from palimpsest.records.duplicates import Shingle, shingles_of
from palimpsest.records.personal import is_personal
from palimpsest.records.record import Record
from palimpsest.records.segment import words
from palimpsest.records.structured import members_of

_MOST_NOTED = 30  # rows of each filter
_NOTED = "removed_samples"  # in generation.json


@dataclass(frozen=True)
class Candidate:
    """A synthetic row that may be kept.

    Attributes:
        record: the drawn text and the label it was drawn for.
        probability: of that label given the text, by the variant's own discriminator, public or fitted privately; nan
            where the variant has none.
    """

    record: Record
    probability: float


class Filter(Protocol):
    """One reason to remove a synthetic row.

    Guarantee: `keeps` looks at each candidate by itself, and at those it kept before, in order; never at later ones.
    """

    @property
    def name(self) -> str:
        """Its name, as settings and counts have it."""

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return for each candidate whether it stays."""


class FilterChain:
    """Filters in order; each sees only what the ones before it kept. Some of what each removes is noted.

    >>> chain = FilterChain([LengthFilter(2, None), PersonalData()])
    >>> texts = ["Call +44 20 7946 0958", "Lovely", "Lovely since 1998"]
    >>> [kept.record.text for kept in chain.apply([Candidate(Record(text), 1.0) for text in texts])]
    ['Lovely since 1998']
    >>> chain.seen, chain.removed
    (3, {'length': 1, 'personal_data': 1})
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        """Start with nothing seen; ValueError if two filters have one name, for their counts would be mixed."""
        self._filters = tuple(filters)
        self._seen = 0
        self._removed = {each.name: 0 for each in self._filters}
        self._noted = {each.name: _Reservoir() for each in self._filters}
        if len(self._removed) < len(self._filters):
            raise ValueError(f"filters must have different names, got {[each.name for each in self._filters]!r}")

    @property
    def seen(self) -> int:
        """The number of candidates given so far."""
        return self._seen

    @property
    def removed(self) -> dict[str, int]:
        """Filter name -> candidates it removed so far, every filter named, in the order of the chain."""
        return dict(self._removed)

    def apply(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The candidates that every filter keeps, in order."""
        kept = list(candidates)
        self._seen += len(kept)
        for each in self._filters:
            before, keeps = kept, each.keeps(kept)
            kept = list(compress(before, keeps))
            self._removed[each.name] += len(before) - len(kept)
            self._noted[each.name].take(one.record for one, keep in zip(before, keeps, strict=True) if not keep)
        return kept

    @property
    def noted(self) -> dict[str, list[Record]]:
        """Filter name -> at most 30 of the rows that it removed so far, any of them as likely as another.

        They stay in the private zone: a filter may have removed a row because it names one person.
        """
        return {name: one.rows for name, one in self._noted.items() if one.rows}

    def noted_as_json(self) -> dict[str, Any]:
        """Return the noted rows as an entry of generation.json; `read_noted` reads it."""
        return {_NOTED: {name: [asdict(row) for row in rows] for name, rows in self.noted.items()}}


def read_noted(document: Mapping[str, Any]) -> dict[str, list[Record]]:
    """Return filter name -> some of the rows that it removed, from a generation.json; empty where it has none."""
    return {
        name: [Record(row["text"], row["label"]) for row in rows] for name, rows in document.get(_NOTED, {}).items()
    }


class _Reservoir:
    """Some of a sequence of rows, each as likely as another (Vitter 1985, algorithm R).

    The draws have their own seed: the kept rows are a function of the sequence only.
    """

    def __init__(self) -> None:
        self.rows = list[Record]()
        self._seen, self._draw = 0, random.Random(0)

    def take(self, rows: Iterable[Record]) -> None:
        for row in rows:
            self._seen += 1
            if self._seen <= _MOST_NOTED:
                self.rows.append(row)
            elif (place := self._draw.randrange(self._seen)) < _MOST_NOTED:
                self.rows[place] = row


@dataclass(frozen=True)
class LengthFilter:
    """Keeps texts of `min_words` to `max_words` words; None means no upper limit.

    Words are those of `segment`: in a script without spaces each sign is one.
    """

    min_words: int
    max_words: int | None
    name = "length"

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which candidates have an allowed length."""
        most = inf if self.max_words is None else self.max_words
        return [self.min_words <= len(words(candidate.record.text)) <= most for candidate in candidates]


@dataclass(frozen=True)
class Structure:
    """Keeps texts that are a JSON object and that `valid`, a test by the public schema, says yes to."""

    valid: Callable[[Any], bool]
    name = "structure"

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which candidates are records of the schema."""
        found = (members_of(candidate.record.text) for candidate in candidates)
        return [members is not None and self.valid(members) for members in found]


@dataclass(frozen=True)
class Label:
    """Keeps texts whose label has at least the probability `threshold`, in [0, 1]: label consistency.

    Guarantee: free only because the probability comes from a public discriminator or one fitted privately. One that
    was fitted to private rows without noise voids the guarantee of all that it filters.
    """

    threshold: float
    name = "label"

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which candidates are likely enough to carry their label.

        Raises:
            ParamsError: a candidate has no probability.
        """
        if any(isnan(candidate.probability) for candidate in candidates):
            raise ParamsError(
                "The label filter needs the probability of each text's label, and this variant has no discriminator.",
                "Take label out of generate.filters.chain, or train a discriminator.",
            )
        return [candidate.probability >= self.threshold for candidate in candidates]


@dataclass(frozen=True)
class Perplexity:
    """Keeps texts that a public language model does not find too unlikely.

    A text to which the model gives no number (nan) is removed.

    Attributes:
        loss: texts -> mean token loss of each in nats, shape (texts,), by a public model; a text's loss must not
            depend on its neighbours.
        limit: the largest loss that is kept, in nats: the logarithm of the perplexity, see `perplexity_limit`.
    """

    loss: Callable[[Sequence[str]], np.ndarray]
    limit: float
    name = "perplexity"

    def __post_init__(self) -> None:
        validate.require_positive(limit=self.limit)

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which candidates are likely enough; ValueError if `loss` does not give one number per text."""
        if not candidates:
            return []
        losses = np.asarray(self.loss([candidate.record.text for candidate in candidates]))
        if losses.shape != (len(candidates),):
            raise ValueError(f"loss must give shape ({len(candidates)},), got {losses.shape}")
        return (losses <= self.limit).tolist()


def perplexity_limit(heldout_losses: np.ndarray, quantile: float) -> float:
    """The smallest held-out loss that at least this share of the held-out texts does not exceed.

    Args:
        heldout_losses: mean token loss in nats of public texts that the public model was not fitted to, shape (n,).
        quantile: share in (0, 1].

    Raises:
        DataError: there is no held-out text, or one without a finite loss: the limit would remove all or nothing.

    >>> perplexity_limit(np.array([3.0, 1.0, 2.0, 9.0]), 0.75)
    3.0
    """
    validate.require_positive(quantile=quantile)
    validate.require_in_range(0, 1, quantile=quantile)
    if not (np.size(heldout_losses) and np.isfinite(heldout_losses).all()):
        raise DataError(
            "The perplexity filter finds no limit: the public model gives no finite loss to the held-out public texts.",
            "Add public texts that are not empty, or take perplexity out of generate.filters.chain.",
        )
    return float(np.quantile(heldout_losses, quantile, method="inverted_cdf"))


class Duplicates:
    """Removes a text that is like one kept before: equal words in order, or similar word shingles.

    Exact, whatever the labels: two texts are alike if their sets of word shingles have at least the Jaccard similarity
    `similarity`; texts of equal wording have equal sets. A text is compared with kept ones only, so of a drifting row
    of texts, each near the one before it, more than the first may stay.

    The index knows which kept texts have a shingle, so one count over the lists of a text's shingles gives the sizes
    of all its intersections: no pair of texts is compared by itself, however common their shingles are.
    """

    name = "duplicates"

    def __init__(self, similarity: float, shingle: int) -> None:
        """Start with nothing kept; `shingle` is in words, and a shorter text is one shingle."""
        self._similarity = similarity
        self._shingle = shingle
        self._sizes = array("q")  # shingles of each kept text
        self._index: dict[Shingle, array[int]] = {}  # shingle -> kept texts that have it

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which candidates are unlike all texts kept before, in this call or an earlier one."""
        return [self._add(words(candidate.record.text)) for candidate in candidates]

    def _add(self, tokens: Sequence[str]) -> bool:
        shingles = shingles_of(tokens, self._shingle)
        if self._is_known(shingles):
            return False
        for shingle in shingles:
            self._index.setdefault(shingle, array("q")).append(len(self._sizes))
        self._sizes.append(len(shingles))
        return True

    def _is_known(self, shingles: Collection[Shingle]) -> bool:
        owners = [self._index[shingle] for shingle in shingles if shingle in self._index]
        if not owners:
            return False
        met, shared = _count_distinct(np.frombuffer(b"".join(owners), dtype=np.int64))
        sizes = np.frombuffer(self._sizes, dtype=np.int64)[met]
        return bool((shared / (len(shingles) + sizes - shared) >= self._similarity).any())


def _count_distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers and how often each occurs: `np.unique` without the sort, for small numbers."""
    counts = np.bincount(numbers)
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct]


@dataclass(frozen=True)
class PersonalData:
    """Removes rows that are `personal`: they contain what looks like a way to reach, charge or name one person.

    It tidies what is published; the privacy of the rows behind it is the generator's guarantee and does not rest on it.
    """

    name = "personal_data"

    def keeps(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return which candidates are not `personal`."""
        return [not is_personal(candidate.record) for candidate in candidates]
