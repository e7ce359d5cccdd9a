"""How like the private texts the synthetic ones are, as sets: embeddings, words, lengths, diversity.

Private zone: every value is a function of private rows. A measure says little alone: two samples of one distribution
are some way apart, and the further the fewer they are. So each stands beside three others at the same number of rows:
against the holdout in place of the members (nearer to the members than to the holdout means copied, not alike), between
members and holdout dealt anew by fair coins (the floor: as good as real), and for public texts (what costs nothing).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from palimpsest import validate
from palimpsest.audit.distance import frechet, wasserstein
from palimpsest.audit.manifold import manifold
from palimpsest.audit.mauve import mauve
from palimpsest.audit.statistics import auc_value
from palimpsest.errors import DataError, ModelError
from palimpsest.progress import track
from palimpsest.records.duplicates import words
from palimpsest.workspace import INTERNAL

_FEWEST = 20  # rows of a set
_FOLDS = 5
_STRENGTH = 0.1  # of the classifiers' penalty: C of scikit-learn
_ORDERS = (1, 2, 3)  # n of the distinct n-grams
_BINS = 20  # of lengths in the figure
_SHOWN = 0.99  # of the texts are in its bins of equal width
_ALL, _IN_PAIRS, _MATCHED = 5000, 2000, 1000  # most rows: time is linear in them, quadratic, cubic


@dataclass(frozen=True, eq=False)
class EmbeddedTexts:
    """Texts and their embeddings.

    Attributes:
        vectors: shape (n, d).
        texts: n of them.
    """

    vectors: np.ndarray
    texts: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.texts):
            raise ValueError(f"a sample has a vector for each text, got {len(self.vectors)} and {len(self.texts)}")
        if not np.isfinite(self.vectors).all():
            raise ModelError("Embeddings are not all finite.", "Use another encoder, or look for what it cannot read.")

    def __len__(self) -> int:
        return len(self.texts)

    def drawn(self, n: int, rng: np.random.Generator) -> "EmbeddedTexts":
        """n rows in random order, drawn without replacement."""
        chosen = rng.permutation(len(self))[:n]
        return EmbeddedTexts(self.vectors[chosen], [self.texts[index] for index in chosen])

    def part(self, start: int, end: int) -> "EmbeddedTexts":
        """The rows from `start` on, up to `end`."""
        return EmbeddedTexts(self.vectors[start:end], self.texts[start:end])

    def and_also(self, other: "EmbeddedTexts") -> "EmbeddedTexts":
        """The rows of both, one after the other."""
        return EmbeddedTexts(np.concatenate([self.vectors, other.vectors]), [*self.texts, *other.texts])


@dataclass(frozen=True)
class Sides:
    """The sets that are compared.

    Attributes:
        synthetic: what was written.
        train: members: rows of the audit subset that were trained on, each of another unit of privacy.
        holdout: rows of the audit subset that were not, the same.
        public: public texts.
    """

    synthetic: EmbeddedTexts
    train: EmbeddedTexts
    holdout: EmbeddedTexts
    public: EmbeddedTexts


@dataclass(frozen=True)
class Measured:
    """One measure at one number of rows, each value the mean over random subsets.

    Attributes:
        name: of the measure.
        better: "lower" or "higher".
        n: rows of either set.
        value: of the synthetic texts against the members.
        unseen: against the holdout.
        public: of public texts against the members; None where there are too few.
        floor: of holdout against members, both dealt anew by fair coins for each subset.
        floor_low, floor_high: the least and the largest of the dealings.
    """

    name: str
    better: str
    n: int
    value: float
    unseen: float
    public: float | None
    floor: float
    floor_low: float
    floor_high: float

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "name"}

    @classmethod
    def from_json(cls, name: str, body: Mapping[str, Any]) -> "Measured":
        return cls(**{one.name: {"name": name, **body}[one.name] for one in fields(cls)})


@dataclass(frozen=True)
class Diversity:
    """One set of texts by itself, at the number of rows and of n-grams that all sets have.

    Attributes:
        words: mean number of words of a text.
        deciles: of the number of words, the 10 %, 20 %, ... 90 % quantiles.
        duplicates: share of the texts whose wording an earlier one has.
        distinct: n -> distinct n-grams over all n-grams (Li et al. 2016).
    """

    words: float
    deciles: tuple[float, ...]
    duplicates: float
    distinct: dict[int, float]

    def to_json(self) -> dict[str, Any]:
        distinct = {f"distinct_{order}": share for order, share in self.distinct.items()}
        return {"words": self.words, "deciles": list(self.deciles), "duplicates": self.duplicates, **distinct}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Diversity":
        distinct = {order: body[f"distinct_{order}"] for order in _ORDERS}
        return cls(body["words"], tuple(body["deciles"]), body["duplicates"], distinct)


@dataclass(frozen=True)
class LengthBin:
    """The share of each set's texts that have `first` to `last` words."""

    first: int
    last: int
    shares: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first, "last": self.last, **self.shares}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "LengthBin":
        shares = {name: share for name, share in body.items() if name not in ("first", "last")}
        return cls(body["first"], body["last"], shares)


@dataclass(frozen=True)
class FidelityAudit:
    """Private zone: all measures, and each set's lengths and diversity.

    Attributes:
        measures: one by one, in a fixed order.
        diversity: name of a set -> its own figures.
        n: texts that each set's figures rest on.
        lengths: shares of each set's texts by their number of words.
        labels: name of a set -> label -> share of its rows; none where rows have no public list of labels.
    """

    measures: tuple[Measured, ...]
    diversity: dict[str, Diversity]
    n: int
    lengths: tuple[LengthBin, ...]
    labels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def to_json(self, variant: str) -> dict[str, Any]:
        return {
            "variant": variant,
            "zone": INTERNAL,
            "measures": {measured.name: measured.to_json() for measured in self.measures},
            "diversity": {"n": self.n, **{name: found.to_json() for name, found in self.diversity.items()}},
            "lengths": [one.to_json() for one in self.lengths],
            "labels": {name: dict(shares) for name, shares in self.labels.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "FidelityAudit":
        sets = {name: Diversity.from_json(one) for name, one in body["diversity"].items() if name != "n"}
        return cls(
            measures=tuple(Measured.from_json(name, one) for name, one in body["measures"].items()),
            diversity=sets,
            n=body["diversity"]["n"],
            lengths=tuple(LengthBin.from_json(one) for one in body["lengths"]),
            labels=body["labels"],
        )


def fidelity(sides: Sides, seed: int, *, most: int = _ALL, repeats: int = 3) -> FidelityAudit:
    """Measure the synthetic texts against members, holdout and public texts.

    Args:
        seed: of the subsets, the dealings, the folds and of k-means.
        most: most rows of a subset. Distances of all pairs rest on at most 2000, the matched ones on at most 1000.
        repeats: subsets and dealings that each value is the mean over.

    Raises:
        DataError: a set of synthetic texts, members or holdout has fewer than 20 rows.
    """
    validate.positive(most=most, repeats=repeats)
    rows = min(len(sides.synthetic), len(sides.train), len(sides.holdout))
    if rows < _FEWEST:
        raise DataError(
            f"Fidelity needs {_FEWEST} synthetic texts, members and non-members.",
            "Generate more rows, or give the audit a larger audit.size.",
        )
    measures: list[Measured] = []
    for measure in track(_MEASURES, name="fidelity", total=len(_MEASURES), private=False, unit="measure"):
        n = min(most, measure.most, rows)
        runs = [_run(measure.of, sides, n, (seed, repeat)) for repeat in range(repeats)]
        measures += [_summary(name, better, n, runs) for name, better in measure.better.items()]
    texts = _alike_many(sides, min(most, rows), seed)
    return FidelityAudit(tuple(measures), diversities(texts), min(most, rows), length_bins(texts))


def _run(of: "Of", sides: Sides, n: int, seed: tuple[int, int]) -> dict[str, dict[str, float]]:
    """Each comparison of one draw of subsets, and the floor of one dealing: comparison -> measure -> value."""
    rng = np.random.default_rng(seed)
    synthetic, train, holdout = (side.drawn(n, rng) for side in (sides.synthetic, sides.train, sides.holdout))
    dealt = sides.train.and_also(sides.holdout).drawn(2 * n, rng)
    found = {
        "value": of(synthetic, train, seed[1]),
        "unseen": of(synthetic, holdout, seed[1]),
        "floor": of(dealt.part(0, n), dealt.part(n, 2 * n), seed[1]),
    }
    enough = len(sides.public) >= n
    return {**found, "public": of(sides.public.drawn(n, rng), train, seed[1])} if enough else found


def _summary(name: str, better: str, n: int, runs: Sequence[dict[str, dict[str, float]]]) -> Measured:
    each = {side: [run[side][name] for run in runs] for side in runs[0]}
    means = {side: float(np.mean(values)) for side, values in each.items()}
    return Measured(
        name=name,
        better=better,
        n=n,
        value=means["value"],
        unseen=means["unseen"],
        public=means.get("public"),
        floor=means["floor"],
        floor_low=min(each["floor"]),
        floor_high=max(each["floor"]),
    )


# --- measures of two sets --------------------------------------------------------------------------------------


def two_sample_auc(first: np.ndarray, second: np.ndarray, seed: int) -> float:
    """How well a linear classifier tells two sets apart: the AUC on rows it was not fitted to, .5 for one distribution.

    Source: Lopez-Paz and Oquab 2017, with the AUC for the accuracy. Five folds, each scored by a logistic regression
    that was fitted to the other four; the mean of their five AUCs, because scores of different fits do not compare.
    Below .5 are sets whose rows are each other's copies: what one side taught, the other contradicts.

    Args:
        first: embeddings, shape (n, d).
        second: shape (m, d).
        seed: of the folds.
    """
    sides = np.arange(len(first) + len(second)) < len(first)
    return _cross_fitted(make_pipeline(StandardScaler(), _classifier()), np.concatenate([first, second]), sides, seed)


def two_sample_words_auc(first: Sequence[str], second: Sequence[str], seed: int) -> float:
    """The same by which words a text has: a view that no encoder shares."""
    sides = np.arange(len(first) + len(second)) < len(first)
    bags = CountVectorizer(binary=True, tokenizer=words, lowercase=False, token_pattern=None)
    return _cross_fitted(_classifier(), bags.fit_transform([*first, *second]), sides, seed)


def _classifier() -> LogisticRegression:
    return LogisticRegression(C=_STRENGTH, max_iter=1000)


def _cross_fitted(model: Any, rows: Any, sides: np.ndarray, seed: int) -> float:
    """Mean AUC over the folds; rows are dense or sparse, shape (n, features)."""
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    found = []
    for fitted, held in folds.split(sides, sides):
        scores = model.fit(rows[fitted], sides[fitted]).decision_function(rows[held])
        found.append(auc_value(scores[sides[held]], scores[~sides[held]]))
    return float(np.mean(found))


def mmd(first: np.ndarray, second: np.ndarray) -> float:
    """Squared maximum mean discrepancy, without bias: around 0, and below it too, for samples of one distribution.

    Source: Gretton et al. 2012, equation 3 (the U-statistic), with the kernel exp(-|x - y|^2 / (2 s^2)), s the median
    distance within the second set: whoever is compared with the same rows is compared under nearly the same kernel.

    Args:
        first: shape (n, d), n >= 2.
        second: shape (m, d), m >= 2.
    """
    one, two = first.astype(np.float64), second.astype(np.float64)
    inside = cdist(two, two, "sqeuclidean")
    scale = float(np.median(inside[np.triu_indices(len(two), 1)])) or 1.0  # 1: where most rows are equal
    within = sum(
        _off_diagonal_mean(np.exp(squares / (-2.0 * scale))) for squares in (cdist(one, one, "sqeuclidean"), inside)
    )
    return float(within - 2.0 * np.exp(cdist(one, two, "sqeuclidean") / (-2.0 * scale)).mean())


def _off_diagonal_mean(kernel: np.ndarray) -> float:
    """Mean over pairs of different rows; the kernel of a row with itself is 1."""
    n = len(kernel)
    return float((kernel.sum() - n) / (n * (n - 1)))


def length_distance(first: Sequence[str], second: Sequence[str]) -> float:
    """Wasserstein distance of the numbers of words of two sets of texts, in words."""
    return float(wasserstein_distance(*([len(words(text)) for text in side] for side in (first, second))))


# --- one set by itself -----------------------------------------------------------------------------------------


def diversities(texts: Mapping[str, Sequence[str]]) -> dict[str, Diversity]:
    """Each set's lengths, duplicates and distinct n-grams.

    The share of distinct n-grams falls with their number, so every set gives as many as the one that has fewest, from
    its first texts on: put the texts in random order, and give sets of equal size.

    Args:
        texts: name of a set -> its texts.
    """
    split = {name: [words(text) for text in side] for name, side in texts.items()}
    grams = {order: {name: _grams(side, order) for name, side in split.items()} for order in _ORDERS}
    fewest = {order: min(map(len, sides.values())) for order, sides in grams.items()}
    return {
        name: Diversity(
            words=float(np.mean([len(text) for text in side])),
            deciles=tuple(np.quantile([len(text) for text in side], np.arange(1, 10) / 10).tolist()),
            duplicates=1.0 - len({tuple(text) for text in side}) / len(side),
            distinct={order: _distinct(grams[order][name][: fewest[order]]) for order in _ORDERS},
        )
        for name, side in split.items()
    }


def _grams(texts: Sequence[Sequence[str]], order: int) -> list[tuple[str, ...]]:
    return [gram for text in texts for gram in zip(*(text[start:] for start in range(order)), strict=False)]


def _distinct(grams: Sequence[tuple[str, ...]]) -> float:
    return len(set(grams)) / len(grams) if grams else math.nan


def length_bins(texts: Mapping[str, Sequence[str]]) -> tuple[LengthBin, ...]:
    """Shares of texts by their number of words, in bins of one width; the last holds all that are longer."""
    lengths = {name: np.array([len(words(text)) for text in side]) for name, side in texts.items()}
    everything = np.concatenate(list(lengths.values()))
    width = max(1, math.ceil((np.quantile(everything, _SHOWN) + 1) / _BINS))
    counts = {
        name: np.bincount(np.minimum(side // width, _BINS - 1), minlength=_BINS) for name, side in lengths.items()
    }
    return tuple(
        LengthBin(
            first=number * width,
            last=max((number + 1) * width - 1, int(everything.max()) if number == _BINS - 1 else 0),
            shares={name: float(found[number] / found.sum()) for name, found in counts.items()},
        )
        for number in range(_BINS)
    )


def label_shares(labels: Sequence[str], sets: Mapping[str, Sequence[str | None]]) -> dict[str, dict[str, float]]:
    """Each set's share of rows with each label; none where no labels are public.

    Args:
        labels: the public list.
        sets: name of a set -> the label of each of its rows.
    """
    return {
        name: {label: found.count(label) / len(found) for label in labels} for name, found in sets.items() if labels
    }


def _alike_many(sides: Sides, n: int, seed: int) -> dict[str, Sequence[str]]:
    """n texts of each set in random order; public texts where there are as many."""
    named = {"synthetic": sides.synthetic, "train": sides.train, "holdout": sides.holdout, "public": sides.public}
    rng = np.random.default_rng(seed)
    return {name: side.drawn(n, rng).texts for name, side in named.items() if len(side) >= n}


# --- the measures ----------------------------------------------------------------------------------------------

Of = Callable[[EmbeddedTexts, EmbeddedTexts, int], dict[str, float]]


@dataclass(frozen=True)
class _Measure:
    """What is measured at once: (a sample, a sample of real texts, seed) -> name -> value.

    Attributes:
        of: the function.
        better: each name -> whether "lower" or "higher" is better.
        most: most rows of a set.
    """

    of: Of
    better: Mapping[str, str]
    most: int


def _manifold(one: EmbeddedTexts, real: EmbeddedTexts, _: int) -> dict[str, float]:
    return asdict(manifold(one.vectors, real.vectors))


_MEASURES = (
    _Measure(lambda a, b, seed: {"c2st": two_sample_auc(a.vectors, b.vectors, seed)}, {"c2st": "lower"}, _ALL),
    _Measure(
        lambda a, b, seed: {"c2st_words": two_sample_words_auc(a.texts, b.texts, seed)}, {"c2st_words": "lower"}, _ALL
    ),
    _Measure(lambda a, b, seed: {"mauve": mauve(a.vectors, b.vectors, seed)}, {"mauve": "higher"}, _ALL),
    _Measure(lambda a, b, _: {"frechet": frechet(a.vectors, b.vectors)}, {"frechet": "lower"}, _ALL),
    _Measure(
        _manifold, {"precision": "higher", "recall": "higher", "density": "higher", "coverage": "higher"}, _IN_PAIRS
    ),
    _Measure(lambda a, b, _: {"mmd": mmd(a.vectors, b.vectors)}, {"mmd": "lower"}, _IN_PAIRS),
    _Measure(lambda a, b, _: {"wasserstein": wasserstein(a.vectors, b.vectors)}, {"wasserstein": "lower"}, _MATCHED),
    _Measure(lambda a, b, _: {"length": length_distance(a.texts, b.texts)}, {"length": "lower"}, _ALL),
)
