"""Membership inference from only the released rows: no model is queried, so every method is attacked in the same way.

A score is a function of the released rows, of public text and of the guess records of both sides taken together. None
is fitted on a coin, so the bound of one run holds for them (`audit_membership`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, issparse
from scipy.stats import binom
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from palimpsest import validate
from palimpsest.audit.membership import MembershipAudit
from palimpsest.audit.ngrams import WordIds
from palimpsest.audit.statistics import Rate
from palimpsest.audit.units import Released, Scores, Units
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.records.segment import words

Features = Literal["word", "character"]
_Vectors: TypeAlias = np.ndarray | csr_matrix

_AT_ONCE = 256  # records compared with all rows at once
_FEATURES: Mapping[Features, Mapping[str, Any]] = {
    "word": {"ngram_range": (1, 2), "tokenizer": words, "token_pattern": None, "lowercase": False},
    "character": {"analyzer": "char_wb", "ngram_range": (4, 4)},
}
_PENALTY = 10.0  # C of the auxiliary classifier
_ITERATIONS = 500
_SMALLEST = 1e-12  # probability of a label that no synthetic row has


def text_attacks(released: Released, *, order: int, labelled: bool, seed: int) -> dict[str, Scores]:
    """Run all attacks that need only texts and labels.

    Args:
        order: longest n-gram of the n-gram attack.
        labelled: whether labels come from a public list: then a classifier attacks too.
        seed: selects the public rows that are compared.
    """
    attacks = {
        "ngram": ngram_attack(released, order),
        "nearest_words": nearest_attack(released, "word", seed),
        "nearest_characters": nearest_attack(released, "character", seed),
    }
    return attacks | ({"label": label_attack(released)} if labelled else {})


def ngram_attack(released: Released, order: int) -> Scores:
    """Score records by how much likelier an n-gram model of the synthetic texts finds them than one of public text.

    Source: Meeus et al. 2025 ("The Canary's Echo"), with the smoothing of `log_likelihoods` and, in place
    of models of other synthetic sets, one of public text as the reference.
    """
    vocabulary, both = dict[str, int](), (released.texts, released.public)
    corpora = [WordIds.read([*fitted, *released.private], vocabulary) for fitted in both]
    synthetic, public = (
        log_likelihoods(corpus, len(fitted), order, max(1, len(vocabulary)))
        for corpus, fitted in zip(corpora, both, strict=True)
    )
    return released.scores(synthetic - public)


def nearest_attack(released: Released, features: Features, seed: int) -> Scores:
    """Score records by how much nearer their nearest synthetic row is than their nearest public one.

    Nearness is the cosine of TF-IDF vectors, of words and word pairs or of characters within words, which see scripts
    without spaces too. `seed` selects the public rows that are compared.
    """
    texts, rows = released.private, released.texts
    public = [released.public[index] for index in released.draw_public(seed)]
    vectors = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **_FEATURES[features])
    try:
        vectors.fit([*rows, *texts, *public])
    except ValueError:  # no feature at all: nothing is nearer than anything
        return released.scores(np.zeros(len(texts)))
    records = vectors.transform(texts)
    near = [_nearest_similarity(records, vectors.transform(others)) for others in (rows, public)]
    return released.scores(near[0] - near[1])


def embedding_attack(
    released: Released, records: np.ndarray, synthetic: np.ndarray, public: np.ndarray, seed: int
) -> Scores:
    """Score nearness as `nearest_attack` does, by unit vectors of `released.records`, released rows and public texts.

    Each has shape (texts, d).
    """
    near = [_nearest_similarity(records, rows) for rows in (synthetic, public[released.draw_public(seed)])]
    return released.scores(near[0] - near[1])


def label_attack(released: Released) -> Scores:
    """Score records by how likely a classifier trained on the synthetic rows finds their label.

    The classifier is a logistic regression on TF-IDF of words and word pairs of the synthetic rows. Where they have one
    label or no word, every record has the same score: the number of attacks must not depend on the release.
    """
    records, targets = released.records, np.array([row.label or "" for row in released.synthetic])
    vectors = TfidfVectorizer(sublinear_tf=True, **_FEATURES["word"])
    try:
        features = vectors.fit_transform(released.texts)
    except ValueError:
        return released.scores(np.zeros(len(records)))
    if len(np.unique(targets)) < 2:
        return released.scores(np.zeros(len(records)))
    model = LogisticRegression(C=_PENALTY, max_iter=_ITERATIONS).fit(features, targets)
    probabilities = model.predict_proba(vectors.transform(released.private))
    is_own = np.array([row.label or "" for row in records])[:, None] == model.classes_  # (records, labels)
    return released.scores(np.log(np.maximum((probabilities * is_own).sum(axis=1), _SMALLEST)))


# --- n-gram models ---------------------------------------------------------------------------------------------


def log_likelihoods(corpus: WordIds, fitted: int, order: int, vocabulary: int) -> np.ndarray:
    """Mean log-probability per word of some texts under an n-gram model of other texts; float64 (texts - fitted,).

    P(w | h) = (c(hw) + t(h) P(w | h')) / (c(h) + t(h)), where c counts, t(h) is the number of different words seen
    after h, and h' is h without its first word; below the empty history every word is equally likely (interpolated
    smoothing, Witten and Bell 1991). A text without a word has 0.

    Args:
        corpus: the texts that the model is fitted on, then the texts to score.
        fitted: number of texts that the model is fitted on.
        order: longest n-gram.
        vocabulary: number of different words.
    """
    validate.require_positive(order=order, vocabulary=vocabulary)
    seen = corpus.row < fitted
    probability = np.full(len(corpus.ids), 1.0 / vocabulary)
    for level in _levels(corpus, order):
        probability = _refine(level, seen, probability)
    rows, texts = corpus.row[~seen] - fitted, corpus.rows - fitted
    total = np.bincount(rows, weights=np.log(probability[~seen]), minlength=texts)
    return total / np.maximum(np.bincount(rows, minlength=texts), 1)


@dataclass(frozen=True, eq=False)
class _Level:
    """All n-grams of a corpus, for one n, numbered."""

    order: int
    start: np.ndarray  # where each occurrence starts; int64 (occurrences,)
    gram: np.ndarray  # which n-gram it is; int64 (occurrences,)
    history: np.ndarray  # which (n-1)-gram its first n - 1 words are; int64 (occurrences,)
    histories: int  # one more than the largest of them


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


def _refine(level: _Level, seen: np.ndarray, shorter: np.ndarray) -> np.ndarray:
    """The probability of each word given one word more of its history; shape (words,).

    Args:
        seen: whether the model is fitted on each word, bool (words,).
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
    probability = shorter.copy()
    probability[last] = np.where(mass > 0, refined, shorter[last])
    return probability


# --- rare features ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PhantomOrder(Plain):
    """The phantom test for n-grams of one n."""

    keys: ClassVar = ("features", "train", "holdout", "p")
    features: int  # n-grams that one guess unit has, and no other record of train and holdout, nor a public text
    train: Rate  # member units of which such an n-gram is in the synthetic texts, out of all of them
    holdout: Rate  # the same of non-members
    p: float  # how likely fair coins alone put as many of these units among the members
    # number of such n-grams of each record's unit in the synthetic texts, (records,), members first; none where the
    # test was read from a file, which holds no number of a single record.
    found: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Phantom(Plain):
    """Private zone: rare features of members and of non-members that the synthetic texts hold."""

    keys: ClassVar = ("orders", "p")
    orders: Mapping[int, PhantomOrder]  # n -> its test

    @property
    def p(self) -> float:
        """The smallest p value times the number of tests (Bonferroni)."""
        return min(1.0, len(self.orders) * min(one.p for one in self.orders.values()))

    @property
    def found(self) -> np.ndarray:
        """Weigh the rare n-grams of each record's unit that came out, shorter ones more heavily; shape (records,).

        Texts of a kind put common words together in new ways, so that a long rare n-gram is likelier to occur by chance
        than a short one.
        """
        return np.sum([one.found / order for order, one in self.orders.items()], axis=0)


@dataclass(frozen=True, eq=False)
class TextMembershipAudit(PlainFile):
    """Private zone: attacks on only the released rows, and the rare n-grams in them."""

    membership: Annotated[MembershipAudit, At()]
    phantom: Phantom


def phantom_test(released: Released, others: Sequence[str], orders: Sequence[int]) -> Phantom:
    """Test whether n-grams that a single private unit has occur in the synthetic texts more often for members.

    A rare word of a record that was never read may occur by chance: the holdout shows how often. If the texts were
    independent of the coins, each unit that such an n-gram gives away would be a member with probability 1/2, whatever
    the others are: the number of members among them is binomial, and its p value exact. Units are counted, not n-grams,
    which come in runs, and not the rows of a person, who has one coin: an n-gram in several rows of a person is rare if
    nobody else has it. The null hypothesis is that nothing leaks, not a claim.

    Args:
        others: all other texts of train and holdout, which may not be guessed about. Test rows are not looked at: they
            would take as much from members as from others.
        orders: the n to test, each >= 1.
    """
    validate.require_positive(smallest_order=min(orders))
    texts = released.private
    corpus = WordIds.read([*texts, *others, *released.public, *released.texts], {})
    bounds = np.cumsum([len(texts), len(others), len(released.public)])
    return Phantom(
        {
            level.order: _phantom(level, corpus.row[level.start], bounds, released.units)
            for level in _levels(corpus, max(orders))
            if level.order in orders
        }
    )


def _phantom(level: _Level, row: np.ndarray, bounds: np.ndarray, units: Units) -> PhantomOrder:
    """Run one test; `row` is each n-gram's text, `bounds` the ends of records, other private and public texts."""
    owner = _owners(level, row, bounds, units)
    shown = np.zeros(len(owner), dtype=bool)
    shown[level.gram[row >= bounds[2]]] = True
    each = np.bincount(owner[shown & (owner >= 0)], minlength=len(units))
    members = units.members
    hits, given_away = int((each[:members] > 0).sum()), int((each > 0).sum())
    return PhantomOrder(
        features=int((owner >= 0).sum()),
        train=Rate.exact(hits, members),
        holdout=Rate.exact(given_away - hits, len(units) - members),
        p=float(binom.sf(hits - 1, given_away, 0.5)),
        found=each[units.owner],
    )


def _owners(level: _Level, row: np.ndarray, bounds: np.ndarray, units: Units) -> np.ndarray:
    """The only unit that has an n-gram, or -1 where other or public texts have it; (n-grams,)."""
    grams, records = level.gram.max(initial=-1) + 1, row < bounds[0]
    gram, unit = level.gram[records], units.owner[row[records]]
    owner = np.full(grams, -1, dtype=np.int64)
    owner[gram] = unit
    common = np.zeros(grams, dtype=bool)
    common[gram[owner[gram] != unit]] = True
    common[level.gram[~records & (row < bounds[2])]] = True
    return np.where(common, -1, owner)


def _nearest_similarity(records: _Vectors, rows: _Vectors) -> np.ndarray:
    """Inner product of each record with its nearest row, shape (records,); 0 where there is no row."""
    if not rows.shape[0]:
        return np.zeros(records.shape[0])
    starts = range(0, records.shape[0], _AT_ONCE)
    blocks = ((records[start : start + _AT_ONCE] @ rows.T).max(axis=1) for start in starts)
    return np.concatenate([np.ravel(block.toarray() if issparse(block) else block) for block in blocks])
