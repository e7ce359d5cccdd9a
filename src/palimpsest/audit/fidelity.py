"""The similarity of the synthetic and the private texts as sets: embeddings, words, lengths, diversity.

Private zone: every value is a function of private rows. A measure says little alone: two samples of one distribution
are some distance apart, and the smaller they are the larger it is. So each is reported beside three others at the same
number of rows: against the holdout in place of the members (nearer to the members than to the holdout means copied, not
alike), between members and holdout dealt anew by fair coins (the floor: as good as real), and for public texts (which
cost nothing).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from palimpsest import validate
from palimpsest.audit.measures import (
    compare_clusters,
    frechet,
    length_distance,
    manifold,
    mmd,
    two_sample_auc,
    two_sample_words_auc,
    wasserstein,
)
from palimpsest.errors import DataError, ModelError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.segment import words
from palimpsest.shards import map_items
from palimpsest.workspace import INTERNAL

_FEWEST = 20  # rows of a set
_ORDERS = (1, 2, 3)  # n of the distinct n-grams
_BINS = 20  # of lengths in the figure
_SHOWN = 0.99  # of the texts are in its bins of equal width
_ALL, _IN_PAIRS, _MATCHED = 5000, 2000, 1000  # most rows: time is linear in them, quadratic, cubic


@dataclass(frozen=True, eq=False)
class EmbeddedTexts:
    """n texts and their embeddings, (n, d)."""

    vectors: np.ndarray
    texts: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.texts):
            raise ValueError(f"a sample has a vector for each text, got {len(self.vectors)} and {len(self.texts)}")
        if not np.isfinite(self.vectors).all():
            raise ModelError("Embeddings are not all finite.", "Use another encoder, or look for what it cannot read.")

    def __len__(self) -> int:
        return len(self.texts)

    def draw(self, n: int, rng: np.random.Generator) -> "EmbeddedTexts":
        """n rows in random order, drawn without replacement."""
        return self._select(rng.permutation(len(self))[:n])

    def deal(self, other: "EmbeddedTexts", n: int, rng: np.random.Generator) -> "tuple[EmbeddedTexts, EmbeddedTexts]":
        """The rows of both, dealt anew by fair coins: two sets of n."""
        both = EmbeddedTexts(np.concatenate([self.vectors, other.vectors]), [*self.texts, *other.texts])
        order = rng.permutation(len(both))
        return both._select(order[:n]), both._select(order[n : 2 * n])

    def _select(self, rows: np.ndarray) -> "EmbeddedTexts":
        return EmbeddedTexts(self.vectors[rows], [self.texts[row] for row in rows])


@dataclass(frozen=True)
class Sides:
    """The sets that are compared; every row of `train` and of `holdout` is of a different unit of privacy."""

    synthetic: EmbeddedTexts
    train: EmbeddedTexts
    holdout: EmbeddedTexts
    public: EmbeddedTexts


@dataclass(frozen=True)
class Measured(Plain):
    """One measure at one number of rows, each value the mean over random subsets."""

    better: str  # "lower" or "higher"
    n: int  # rows of either set
    value: float  # of the synthetic texts against the members
    unseen: float  # against the holdout
    public: float | None  # of public texts against the members; None where there are too few
    floor: float  # of holdout against members, both dealt anew by fair coins for each subset
    floor_low: float  # the least of the dealings
    floor_high: float  # the largest


@dataclass(frozen=True)
class Diversity(Plain):
    """The diversity of one set of texts, at a number of rows and of n-grams that all sets have."""

    words: float  # mean number of words of a text
    deciles: tuple[float, ...]  # of the number of words, the 10 %, 20 %, ... 90 % quantiles
    duplicates: float  # share of the texts whose wording an earlier one has
    distinct_1: float  # distinct n-grams over all n-grams, for n from 1 to 3 (Li et al. 2016)
    distinct_2: float
    distinct_3: float


@dataclass(frozen=True)
class LengthBin(Plain):
    """The share of each set's texts that have `first` to `last` words."""

    first: int
    last: int
    shares: Annotated[Mapping[str, float], At()]

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "LengthBin":
        shares = {name: share for name, share in body.items() if name not in ("first", "last")}
        return cls(body["first"], body["last"], shares)


@dataclass(frozen=True)
class FidelityAudit(PlainFile):
    """Private zone: all measures, and each set's lengths and diversity."""

    keys: ClassVar = ("measures", "diversity", "lengths", "labels")
    measures: Mapping[str, Measured]  # name of a measure -> what it says
    diversity: Mapping[str, Diversity]  # name of a set -> its own figures
    lengths: tuple[LengthBin, ...]  # shares of each set's texts by their number of words
    # name of a set -> label -> share of its rows; none where rows have no public list of labels.
    labels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    n: int = 0  # texts that each set's figures rest on; its place in the file is beside the sets of `diversity`

    def to_json(self, variant: str, zone: str = INTERNAL) -> dict[str, Any]:
        body = super().to_json(variant, zone)
        return body | {"diversity": {"n": self.n, **body["diversity"]}}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "FidelityAudit":
        sets = {name: one for name, one in body["diversity"].items() if name != "n"}
        return replace(super().from_json({**body, "diversity": sets}), n=body["diversity"]["n"])


def fidelity(sides: Sides, seed: int, *, most: int = _ALL, repeats: int = 3) -> FidelityAudit:
    """Measure the synthetic texts against members, holdout and public texts.

    Args:
        seed: seeds the subsets, the dealings, the folds and k-means.
        most: most rows of a subset. Distances of all pairs rest on at most 2000, the matched ones on at most 1000.
        repeats: number of subsets and dealings that each value is averaged over.

    Raises:
        DataError: a set of synthetic texts, members or holdout has fewer than 20 rows.
    """
    validate.require_positive(most=most, repeats=repeats)
    rows = min(len(sides.synthetic), len(sides.train), len(sides.holdout))
    if rows < _FEWEST:
        raise DataError(
            f"Fidelity needs {_FEWEST} synthetic texts, members and non-members.",
            "Generate more rows, or give the audit a larger audit.size.",
        )
    comparing = _Comparing(sides, min(most, rows), seed)
    parts = [(place, repeat) for place in range(len(_MEASURES)) for repeat in range(repeats)]
    runs = list(track(map_items(comparing, parts), name="fidelity", total=len(parts), private=False, unit="comparison"))
    measures: dict[str, Measured] = {}
    for place, measure in enumerate(_MEASURES):
        n, own = comparing.rows(measure), runs[place * repeats : (place + 1) * repeats]
        measures |= {name: _summary(name, better, n, own) for name, better in measure.better.items()}
    texts = _draw_equal(sides, min(most, rows), seed)
    return FidelityAudit(measures, diversities(texts), length_bins(texts), n=min(most, rows))


@dataclass(frozen=True, eq=False)
class _Comparing:
    """Compares one draw of subsets by one measure, and one dealing, which is its floor."""

    sides: Sides
    most: int  # rows of a subset
    seed: int

    def rows(self, measure: "_Measure") -> int:
        """Rows of a measure's subsets."""
        return min(self.most, measure.most)

    def __call__(self, part: tuple[int, int]) -> dict[str, dict[str, float]]:
        """Return comparison -> name -> value, for the place of a measure and the number of a draw."""
        (place, repeat), sides = part, self.sides
        measure, rng = _MEASURES[place], np.random.default_rng((self.seed, repeat))
        n = self.rows(measure)
        synthetic, train, holdout = (side.draw(n, rng) for side in (sides.synthetic, sides.train, sides.holdout))
        values = {
            "value": measure.of(synthetic, train, repeat),
            "unseen": measure.of(synthetic, holdout, repeat),
            "floor": measure.of(*sides.train.deal(sides.holdout, n, rng), repeat),
        }
        if len(sides.public) >= n:
            values["public"] = measure.of(sides.public.draw(n, rng), train, repeat)
        return values


def _summary(name: str, better: str, n: int, runs: Sequence[dict[str, dict[str, float]]]) -> Measured:
    means = {side: float(np.mean([run[side][name] for run in runs])) for side in runs[0]}
    floors = [run["floor"][name] for run in runs]
    return Measured(
        better=better,
        n=n,
        value=means["value"],
        unseen=means["unseen"],
        public=means.get("public"),
        floor=means["floor"],
        floor_low=min(floors),
        floor_high=max(floors),
    )


# --- one set by itself -----------------------------------------------------------------------------------------


def diversities(texts: Mapping[str, Sequence[str]]) -> dict[str, Diversity]:
    """Each set's lengths, duplicates and distinct n-grams.

    The share of distinct n-grams falls with their number, so every set contributes as many as the smallest set has,
    from its first texts on: pass the texts in random order, and sets of equal size.
    """
    split = {name: [words(text) for text in side] for name, side in texts.items()}
    grams = {order: {name: _grams(side, order) for name, side in split.items()} for order in _ORDERS}
    fewest = {order: min(map(len, sides.values())) for order, sides in grams.items()}
    return {
        name: Diversity(
            words=float(np.mean([len(text) for text in side])),
            deciles=tuple(np.quantile([len(text) for text in side], np.arange(1, 10) / 10).tolist()),
            duplicates=1.0 - len({tuple(text) for text in side}) / len(side),
            **{f"distinct_{order}": _distinct(grams[order][name][: fewest[order]]) for order in _ORDERS},
        )
        for name, side in split.items()
    }


def _grams(texts: Sequence[Sequence[str]], order: int) -> list[tuple[str, ...]]:
    return [gram for text in texts for gram in zip(*(text[start:] for start in range(order)), strict=False)]


def _distinct(grams: Sequence[tuple[str, ...]]) -> float:
    return len(set(grams)) / len(grams) if grams else math.nan


def length_bins(texts: Mapping[str, Sequence[str]]) -> tuple[LengthBin, ...]:
    """Shares of texts by their number of words, in bins of one width; the last bin holds all longer texts."""
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
            shares={name: float(count[number] / count.sum()) for name, count in counts.items()},
        )
        for number in range(_BINS)
    )


def label_shares(labels: Sequence[str], sets: Mapping[str, Sequence[str | None]]) -> dict[str, dict[str, float]]:
    """Name of a set -> share of its rows with each label of the public list; none where no labels are public."""
    return {name: {label: rows.count(label) / len(rows) for label in labels} for name, rows in sets.items() if labels}


def _draw_equal(sides: Sides, n: int, seed: int) -> dict[str, Sequence[str]]:
    """n texts of each set in random order; public texts only if there are as many."""
    named = {"synthetic": sides.synthetic, "train": sides.train, "holdout": sides.holdout, "public": sides.public}
    rng = np.random.default_rng(seed)
    return {name: side.draw(n, rng).texts for name, side in named.items() if len(side) >= n}


# --- the measures ----------------------------------------------------------------------------------------------

_Of = Callable[[EmbeddedTexts, EmbeddedTexts, int], dict[str, float]]  # written, real, seed -> name -> value


@dataclass(frozen=True)
class _Measure:
    """Measures computed together on at most `most` rows; `better` is "lower" or "higher" for each name."""

    of: _Of
    better: Mapping[str, str]
    most: int


def _manifold(one: EmbeddedTexts, real: EmbeddedTexts, _: int) -> dict[str, float]:
    return asdict(manifold(one.vectors, real.vectors))


_MEASURES = (
    _Measure(lambda a, b, seed: {"c2st": two_sample_auc(a.vectors, b.vectors, seed)}, {"c2st": "lower"}, _ALL),
    _Measure(
        lambda a, b, seed: {"c2st_words": two_sample_words_auc(a.texts, b.texts, seed)}, {"c2st_words": "lower"}, _ALL
    ),
    _Measure(
        lambda a, b, seed: asdict(compare_clusters(a.vectors, b.vectors, seed)),
        {"mauve": "higher", "kl": "lower", "total_variation": "lower"},
        _ALL,
    ),
    _Measure(lambda a, b, _: {"frechet": frechet(a.vectors, b.vectors)}, {"frechet": "lower"}, _ALL),
    _Measure(_manifold, dict.fromkeys(("precision", "recall", "density", "coverage", "f1"), "higher"), _IN_PAIRS),
    _Measure(lambda a, b, _: {"mmd": mmd(a.vectors, b.vectors)}, {"mmd": "lower"}, _IN_PAIRS),
    _Measure(lambda a, b, _: {"wasserstein": wasserstein(a.vectors, b.vectors)}, {"wasserstein": "lower"}, _MATCHED),
    _Measure(lambda a, b, _: {"length": length_distance(a.texts, b.texts)}, {"length": "lower"}, _ALL),
)
