"""Membership inference from the released rows alone: no model is asked, so every method is attacked in one way.

A score is a function of the released rows, of public text and of the guess records of both sides taken together. None
is fitted on a coin, so the bound of one run holds for them (`audit_membership`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, issparse
from scipy.stats import binom
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from palimpsest import validate
from palimpsest.audit.membership import MembershipAudit, Scores
from palimpsest.audit.ngrams import WordIds
from palimpsest.audit.statistics import Rate, clopper_pearson
from palimpsest.audit.units import Units
from palimpsest.errors import DataError
from palimpsest.records.record import Record

Features = Literal["word", "character"]
Vectors: TypeAlias = np.ndarray | csr_matrix

_AT_ONCE = 256  # records compared with all rows at once
_FEATURES: Mapping[Features, Mapping[str, Any]] = {
    "word": {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "character": {"analyzer": "char_wb", "ngram_range": (4, 4)},
}
_PENALTY = 10.0  # C of the auxiliary classifier
_ITERATIONS = 500
_SMALLEST = 1e-12  # probability of a label that no synthetic row has


@dataclass(frozen=True, eq=False)
class Released:
    """What an attacker who sees no model has, and the records it asks about.

    Attributes:
        synthetic: the released rows.
        members: guess records that the method read.
        nonmembers: guess records that it did not.
        public: public texts; some score is always compared with theirs, as text of one kind is alike anyway.
        whose: the units that the guess records are of; None: each is one of its own.
    """

    synthetic: Sequence[Record]
    members: Sequence[Record]
    nonmembers: Sequence[Record]
    public: Sequence[str]
    whose: Units | None = None

    def __post_init__(self) -> None:
        if not self.synthetic:
            raise DataError("There are no synthetic texts.", "Generate some before the audit.")
        if not self.members or not self.nonmembers:
            raise DataError("The audit subset has no member or no non-member.", "Enlarge the audit subset.")

    @property
    def records(self) -> list[Record]:
        """Members, then non-members."""
        return [*self.members, *self.nonmembers]

    @property
    def units(self) -> Units:
        """The units of `records`."""
        return Units.alone(len(self.members), len(self.nonmembers)) if self.whose is None else self.whose

    def scores(self, values: np.ndarray) -> Scores:
        """Values of `records`, shape (records,), as the scores of both sides."""
        return Scores(values[: len(self.members)], values[len(self.members) :])

    def compared(self, seed: int) -> np.ndarray:
        """Indices of as many public texts as there are synthetic rows, or of all: the nearest of more is nearer.

        Args:
            seed: which ones.
        """
        return np.sort(np.random.default_rng(seed).permutation(len(self.public))[: len(self.synthetic)])


def text_attacks(released: Released, *, order: int, labelled: bool, seed: int) -> dict[str, Scores]:
    """All attacks that need texts and labels alone.

    Args:
        order: longest n-gram of the n-gram attack.
        labelled: whether labels come from a public list: then a classifier attacks too.
        seed: which public rows are compared.
    """
    found = {
        "ngram": ngram_attack(released, order),
        "nearest_words": nearest_attack(released, "word", seed),
        "nearest_characters": nearest_attack(released, "character", seed),
    }
    return found | ({"label": label_attack(released)} if labelled else {})


def ngram_attack(released: Released, order: int) -> Scores:
    """A record that an n-gram model of the synthetic texts likes better than one of public text is rather a member.

    Source: Meeus et al. 2025 ("The Canary's Echo"), with the smoothing of `log_likelihoods` and, in place
    of models of other synthetic sets, one of public text as the reference.
    """
    texts, vocabulary = [row.text for row in released.records], dict[str, int]()
    both = [[row.text for row in released.synthetic], list(released.public)]
    corpora = [WordIds.read([*fitted, *texts], vocabulary) for fitted in both]
    synthetic, public = (
        log_likelihoods(corpus, len(fitted), order, len(vocabulary))
        for corpus, fitted in zip(corpora, both, strict=True)
    )
    return released.scores(synthetic - public)


def nearest_attack(released: Released, features: Features, seed: int) -> Scores:
    """A record that is nearer to its nearest synthetic row than to its nearest public one is rather a member.

    Nearness is the cosine of TF-IDF vectors, of words and word pairs or of characters within words, which see scripts
    without spaces too. `seed` says which public rows are compared.
    """
    texts, rows = [row.text for row in released.records], [row.text for row in released.synthetic]
    public = [released.public[index] for index in released.compared(seed)]
    vectors = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **_FEATURES[features])
    try:
        vectors.fit([*rows, *texts, *public])
    except ValueError:  # no feature at all: nothing is nearer than anything
        return released.scores(np.zeros(len(texts)))
    records = vectors.transform(texts)
    near = [_nearest(records, vectors.transform(others)) for others in (rows, public)]
    return released.scores(near[0] - near[1])


def embedding_attack(
    released: Released, records: np.ndarray, synthetic: np.ndarray, public: np.ndarray, seed: int
) -> Scores:
    """The same by a sentence encoder.

    Args:
        records: unit vectors of `released.records`, shape (records, d).
        synthetic: of the released rows, (rows, d).
        public: of the public texts, (texts, d).
        seed: which public rows are compared.
    """
    near = [_nearest(records, rows) for rows in (synthetic, public[released.compared(seed)])]
    return released.scores(near[0] - near[1])


def label_attack(released: Released) -> Scores:
    """A record whose label a classifier trained on the synthetic rows finds likely is rather a member.

    The classifier is a logistic regression on TF-IDF of words and word pairs of the synthetic rows. Where they have one
    label or no word, every record has the same score: the number of attacks must not hang on what was released.
    """
    records, targets = released.records, np.array([row.label or "" for row in released.synthetic])
    vectors = TfidfVectorizer(sublinear_tf=True, **_FEATURES["word"])
    try:
        features = vectors.fit_transform([row.text for row in released.synthetic])
    except ValueError:
        return released.scores(np.zeros(len(records)))
    if len(np.unique(targets)) < 2:
        return released.scores(np.zeros(len(records)))
    model = LogisticRegression(C=_PENALTY, max_iter=_ITERATIONS).fit(features, targets)
    probabilities = model.predict_proba(vectors.transform([row.text for row in records]))
    place = {label: index for index, label in enumerate(model.classes_)}
    own = [
        row_probabilities[place[row.label or ""]] if (row.label or "") in place else 0.0
        for row, row_probabilities in zip(records, probabilities, strict=True)
    ]
    return released.scores(np.log(np.maximum(own, _SMALLEST)))


# --- n-gram models ---------------------------------------------------------------------------------------------


def log_likelihoods(corpus: WordIds, fitted: int, order: int, vocabulary: int) -> np.ndarray:
    """Mean log-probability per word of some texts under an n-gram model of others; float64 (texts - fitted,).

    P(w | h) = (c(hw) + t(h) P(w | h')) / (c(h) + t(h)), where c counts, t(h) is the number of different words seen
    behind h, and h' is h without its first word; below the empty history every word is equally likely (interpolated
    smoothing, Witten and Bell 1991). A text without a word has 0.

    Args:
        corpus: the texts that the model is fitted on, then the texts to score.
        fitted: how many of them the model is fitted on.
        order: longest n-gram.
        vocabulary: number of different words.
    """
    validate.positive(order=order, vocabulary=vocabulary)
    seen = corpus.row < fitted
    probability = np.full(len(corpus.ids), 1.0 / vocabulary)
    for level in _levels(corpus, order):
        probability = _refined(level, seen, probability)
    rows, texts = corpus.row[~seen] - fitted, corpus.rows - fitted
    total = np.bincount(rows, weights=np.log(probability[~seen]), minlength=texts)
    return total / np.maximum(np.bincount(rows, minlength=texts), 1)


@dataclass(frozen=True, eq=False)
class _Level:
    """All n-grams of a corpus, for one n, numbered.

    Attributes:
        order: n.
        start: where each occurrence starts; int64 (occurrences,).
        gram: which n-gram it is; int64 (occurrences,).
        history: which (n-1)-gram its first n - 1 words are; int64 (occurrences,).
        histories: one more than the largest of them.
    """

    order: int
    start: np.ndarray
    gram: np.ndarray
    history: np.ndarray
    histories: int


def _levels(corpus: WordIds, orders: int) -> Iterator[_Level]:
    """The n-grams for n = 1, ..., `orders`: exact, as a pair (number of the history, last word) fits 64 bits."""
    known, histories = np.zeros(len(corpus.ids), dtype=np.int64), 1
    for order in range(1, orders + 1):
        start = np.flatnonzero(corpus.left >= order)
        history = known[start]
        keys, gram = np.unique((history << 32) | corpus.ids[start + order - 1], return_inverse=True)
        yield _Level(order, start, gram, history, histories)
        known = np.zeros(len(corpus.ids), dtype=np.int64)
        known[start], histories = gram, max(1, len(keys))


def _refined(level: _Level, seen: np.ndarray, shorter: np.ndarray) -> np.ndarray:
    """The probability of each word given one word more of its history; shape (words,).

    Args:
        level: the n-grams.
        seen: which words the model is fitted on, bool (words,).
        shorter: the probabilities under the shorter histories, (words,).
    """
    model = seen[level.start]
    counts = np.bincount(level.gram[model], minlength=level.gram.max(initial=-1) + 1)
    times = np.bincount(level.history[model], minlength=level.histories)
    firsts = np.unique(level.gram[model], return_index=True)[1]
    kinds = np.bincount(level.history[model][firsts], minlength=level.histories)
    asked, history = ~model, level.history[~model]
    last = level.start[asked] + level.order - 1
    mass = times[history] + kinds[history]
    refined = (counts[level.gram[asked]] + kinds[history] * shorter[last]) / np.maximum(mass, 1)
    found = shorter.copy()
    found[last] = np.where(mass > 0, refined, shorter[last])
    return found


# --- rare features ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PhantomOrder:
    """The phantom test for n-grams of one n.

    Attributes:
        order: n.
        features: n-grams that one guess unit has, and neither another private record nor a public text.
        train: member units of which such an n-gram is in the synthetic texts, out of all of them.
        holdout: the same of non-members.
        p: how likely fair coins alone put as many of these units among the members.
        found: how many such n-grams of each record's unit are in the synthetic texts, (records,), members first; none
            where the test was read from a file, which holds no number of a single record.
    """

    order: int
    features: int
    train: Rate
    holdout: Rate
    p: float
    found: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def to_json(self) -> dict[str, Any]:
        return {
            "features": self.features,
            "train": self.train.to_json(),
            "holdout": self.holdout.to_json(),
            "p": self.p,
        }

    @classmethod
    def from_json(cls, order: int, body: Mapping[str, Any]) -> "PhantomOrder":
        train, holdout = Rate.from_json(body["train"]), Rate.from_json(body["holdout"])
        return cls(order, body["features"], train, holdout, body["p"])


@dataclass(frozen=True, eq=False)
class Phantom:
    """Private zone: rare features of members and of non-members that the synthetic texts hold.

    Attributes:
        orders: one test for each n.
    """

    orders: tuple[PhantomOrder, ...]

    @property
    def p(self) -> float:
        """The smallest p value times the number of tests (Bonferroni)."""
        return min(1.0, len(self.orders) * min(one.p for one in self.orders))

    @property
    def found(self) -> np.ndarray:
        """How much of each record's unit's rare n-grams came out, the shorter ones weighing more; shape (records,).

        Texts of a kind put common words together in new ways, so that a long rare n-gram comes up by chance before a
        short one does.
        """
        return np.sum([one.found / one.order for one in self.orders], axis=0)

    def to_json(self) -> dict[str, Any]:
        return {"orders": {str(one.order): one.to_json() for one in self.orders}, "p": self.p}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Phantom":
        return cls(tuple(PhantomOrder.from_json(int(order), one) for order, one in body["orders"].items()))


@dataclass(frozen=True, eq=False)
class TextMembershipAudit:
    """Private zone: attacks on the released rows alone, and the rare n-grams that came out."""

    membership: MembershipAudit
    phantom: Phantom

    def to_json(self, variant: str) -> dict[str, Any]:
        return self.membership.to_json(variant) | {"phantom": self.phantom.to_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "TextMembershipAudit":
        return cls(MembershipAudit.from_json(body), Phantom.from_json(body["phantom"]))


def phantom_test(released: Released, others: Sequence[str], orders: Sequence[int], confidence: float) -> Phantom:
    """Do n-grams that a single private unit has show up in the synthetic texts, more so of members?

    A rare word of a record that was never read may come up by chance: so often do those of the holdout. If the texts
    were independent of the coins, each unit that such an n-gram gives away would be a member with probability 1/2,
    whatever the others are: the number of members among them is binomial, and its p value exact. Units are counted and
    not n-grams, which come in runs, nor the rows of a person, who has one coin: what a person says in several rows is
    rare if nobody else says it. The test is of no leak at all, not of a claim.

    Args:
        others: all other private texts, members by no coin or holdout that may not be guessed about.
        orders: the n to test, each >= 1.
        confidence: of the intervals (Clopper-Pearson).
    """
    validate.positive(smallest_order=min(orders))
    texts, synthetic = [row.text for row in released.records], [row.text for row in released.synthetic]
    corpus = WordIds.read([*texts, *others, *released.public, *synthetic], {})
    bounds = np.cumsum([len(texts), len(others), len(released.public)])
    levels = (level for level in _levels(corpus, max(orders)) if level.order in orders)
    return Phantom(tuple(_phantom(level, corpus.row[level.start], bounds, released, confidence) for level in levels))


def _phantom(level: _Level, row: np.ndarray, bounds: np.ndarray, released: Released, confidence: float) -> PhantomOrder:
    """One test; `row` is the text of each n-gram, `bounds` where the records, the other private and the public end."""
    units = released.units
    owner = _owners(level, row, bounds, units)
    shown = np.zeros(len(owner), dtype=bool)
    shown[level.gram[row >= bounds[2]]] = True
    found = np.bincount(owner[shown & (owner >= 0)], minlength=len(units))
    members = units.members
    hits, given_away = int((found[:members] > 0).sum()), int((found > 0).sum())
    return PhantomOrder(
        order=level.order,
        features=int((owner >= 0).sum()),
        train=_rate(hits, members, confidence),
        holdout=_rate(given_away - hits, len(units) - members, confidence),
        p=float(binom.sf(hits - 1, given_away, 0.5)),
        found=found[units.owner],
    )


def _owners(level: _Level, row: np.ndarray, bounds: np.ndarray, units: Units) -> np.ndarray:
    """The unit that is the only one to have an n-gram, or -1 where other or public texts have it; (n-grams,)."""
    grams, records = level.gram.max(initial=-1) + 1, row < bounds[0]
    gram, unit = level.gram[records], units.owner[row[records]]
    owner = np.full(grams, -1, dtype=np.int64)
    owner[gram] = unit
    common = np.zeros(grams, dtype=bool)
    common[gram[owner[gram] != unit]] = True
    common[level.gram[~records & (row < bounds[2])]] = True
    return np.where(common, -1, owner)


def _rate(count: int, n: int, confidence: float) -> Rate:
    return Rate(count, n, *clopper_pearson(count, n, confidence))


def _nearest(records: Vectors, rows: Vectors) -> np.ndarray:
    """Inner product of each record with its nearest row, shape (records,); 0 where there is no row."""
    if not rows.shape[0]:
        return np.zeros(records.shape[0])
    starts = range(0, records.shape[0], _AT_ONCE)
    blocks = ((records[start : start + _AT_ONCE] @ rows.T).max(axis=1) for start in starts)
    return np.concatenate([np.ravel(block.toarray() if issparse(block) else block) for block in blocks])
