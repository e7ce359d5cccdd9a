"""Evidence on the three criteria of the European data-protection authorities: singling out, linkability, inference.

Each is an attack on a record by means of the released rows. Against members it is the main attack; against records that
nothing read it is the control, and shows what the population alone gives away; a baseline guesses without looking. The
risk is what the main attack does beyond the control: (main - control) / (1 - control), after Giomi et al. 2023.

An attack on a record is a function of the release and of all guess records together, never of their coins. So it is a
test of membership, and a proven trade-off curve caps its success on members, given its success on the control. Where a
person is the unit of privacy it succeeds on a person if it does on any of their rows, and rates are of persons.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, ClassVar

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

from palimpsest import validate
from palimpsest.audit.membership import Control
from palimpsest.audit.statistics import Estimate, Rate, wilson
from palimpsest.audit.text_membership import Released
from palimpsest.audit.units import Units
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.records.duplicates import words

BestAttack = Callable[[float], float]  # false-positive rate -> largest true-positive rate that the proof allows

_SIZES = (1, 2, 3, 4)  # words of a predicate
_AT_ONCE = 256  # records compared with all rows at once
_ALMOST_ALWAYS = 1.0 - 1e-6  # a control rate beyond which nothing is left to be at risk


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one attack did to each record, members first.

    Attributes:
        hits: whether it succeeded, bool (records,).
        chance: the probability that the baseline does, (records,).
    """

    hits: np.ndarray
    chance: np.ndarray


@dataclass(frozen=True)
class Evidence(Plain):
    """One attack, its control and its baseline.

    Attributes:
        criterion: "singling out", "linkability" or "inference".
        main: member units on which the attack succeeds.
        control: the other units on which it does.
        baseline: share of member units on which a guess that does not look at the rows would, expected.
        risk: (main - control) / (1 - control); below 0 where the control did better.
        cap: largest risk that the proven curve allows at any control rate within its interval; None without a curve.
    """

    keys: ClassVar = ("criterion", "main", "control", "baseline", "risk", "cap", "informed")
    criterion: str
    main: Rate
    control: Rate
    baseline: float
    risk: Estimate
    cap: float | None

    @property
    def informed(self) -> bool:
        """Whether the attack beats the baseline: one that does not shows nothing, whatever its risk."""
        return self.main.rate > self.baseline


@dataclass(frozen=True)
class AnonymityAudit(PlainFile):
    """Private zone: the evidence on each criterion, behind the control of the coins.

    Attributes:
        members, nonmembers: numbers of units that are guessed about.
        coins: the model-free control; where it fails, main and control do not compare.
        attacks: name -> evidence.
        claim: epsilon of the release; None where it claims none.
        unit: "record" or "person".
    """

    keys: ClassVar = ("unit", "members", "nonmembers", "coins", "attacks", "claim")
    members: int
    nonmembers: int
    coins: Annotated[Control, At("control")]
    attacks: Mapping[str, Evidence]
    claim: float | None
    unit: str


def audit_anonymity(
    released: Released,
    coins: Control,
    *,
    labelled: bool,
    neighbours: int,
    claim: float | None,
    best: BestAttack | None,
    confidence: float,
    seed: int,
) -> AnonymityAudit:
    """Attack every guess record by each criterion.

    Args:
        coins: the model-free control on the same units.
        labelled: whether labels come from a public list: then they are inferred too.
        neighbours: synthetic rows that each half of a record is linked to.
        claim: epsilon of the release; None where it claims none.
        best: the proven curve; None where there is none.
        confidence: of the intervals.
        seed: of the baseline of singling out.

    Raises:
        DataError: the synthetic texts hold no word.
    """
    view = WordView.of(released)
    outcomes = {
        "singling_out": ("singling out", single_out(view, seed)),
        "linkability": ("linkability", link(view, neighbours)),
        "inference_word": ("inference", infer_word(view)),
    }
    if labelled:
        outcomes["inference_label"] = ("inference", infer_label(view))
    units = released.units
    found = {name: _evidence(kind, outcome, units, best, confidence) for name, (kind, outcome) in outcomes.items()}
    return AnonymityAudit(units.members, len(units) - units.members, coins, found, claim, units.kind)


# --- attacks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WordView:
    """The texts as words, in the order in which an attacker who knows public text finds them rare.

    Attributes:
        records: words of each guess record, in the order of the text.
        rows: distinct words of each synthetic row, rarest first.
        rarity: word -> number of public texts that have it.
        vectors: TF-IDF of words, fitted on the synthetic rows.
        vector_rows: of the synthetic rows, (rows, d).
    """

    released: Released
    records: Sequence[Sequence[str]]
    rows: Sequence[Sequence[str]]
    rarity: Mapping[str, int]
    vectors: TfidfVectorizer
    vector_rows: csr_matrix

    @classmethod
    def of(cls, released: Released) -> "WordView":
        """Read the texts.

        Raises:
            DataError: the synthetic texts hold no word.
        """
        rarity = Counter(chain.from_iterable(set(words(text)) for text in released.public))
        texts = [row.text for row in released.synthetic]
        if not any(words(text) for text in texts):
            raise DataError("The synthetic texts hold no word.", "Look at the generator: its training may have failed.")
        vectors = TfidfVectorizer(analyzer=words, sublinear_tf=True, dtype=np.float32)
        vector_rows = vectors.fit_transform(texts)
        rows = [rarest_first(words(text), rarity) for text in texts]
        return cls(released, [words(row.text) for row in released.records], rows, rarity, vectors, vector_rows)

    def nearest(self, tokens: Sequence[Sequence[str]], count: int) -> np.ndarray:
        """The `count` nearest synthetic rows of each list of words, int64 (lists, count); -1 where none shares a word.

        The order of the rows breaks ties.
        """
        asked, count = self.vectors.transform([" ".join(one) for one in tokens]), min(count, len(self.rows))
        found = []
        for start in range(0, asked.shape[0], _AT_ONCE):
            near = (asked[start : start + _AT_ONCE] @ self.vector_rows.T).toarray()
            order = np.argsort(-near, axis=1, kind="stable")[:, :count]
            found.append(np.where(np.take_along_axis(near, order, axis=1) > 0.0, order, -1))
        return np.concatenate(found)


def rarest_first(tokens: Sequence[str], rarity: Mapping[str, int]) -> list[str]:
    """The distinct words, those of the fewest public texts first; among equals the longer ones, then by alphabet."""
    return sorted(set(tokens), key=lambda word: (rarity.get(word, 0), -len(word), word))


def single_out(view: WordView, seed: int) -> Outcome:
    """A record is singled out if some predicate taken from a synthetic row holds for it alone, among all guess records.

    A person is, with all their records, if some predicate holds for records of theirs alone, one or several. The
    predicates of a row are "has these words", for its 1, 2, 3 and 4 rarest words. The baseline puts the same words
    together at random.
    """
    predicates = sorted({tuple(row[:size]) for row in view.rows for size in _SIZES if len(row) >= size})
    places = _places(view.records)
    mixed = _shuffled(predicates, np.random.default_rng(seed))
    hits, chance = (_alone(chosen, places, view.released.units) for chosen in (predicates, mixed))
    return Outcome(hits, chance.astype(np.float64))


def link(view: WordView, neighbours: int) -> Outcome:
    """The two halves of a record are linked if they have one of their nearest synthetic rows in common.

    An attacker has the first half of a text from one source and the second from another, and asks the release whether
    one person wrote both. The baseline links each half to random rows.
    """
    validate.positive(neighbours=neighbours)
    middles = [len(tokens) // 2 for tokens in view.records]
    halves = zip(*((tokens[:at], tokens[at:]) for tokens, at in zip(view.records, middles, strict=True)), strict=True)
    first, second = (view.nearest(half, neighbours) for half in halves)
    met = (first[:, :, None] == second[:, None, :]) & (first[:, :, None] >= 0)
    return Outcome(met.any(axis=(1, 2)), np.full(len(first), meeting_chance(len(view.rows), neighbours)))


def infer_word(view: WordView) -> Outcome:
    """A record's rarest word is guessed from the rest of it: the rarest word of the nearest synthetic row.

    The baseline takes the rarest word of a random row.
    """
    secrets = [next(iter(rarest_first(tokens, view.rarity)), None) for tokens in view.records]
    rests = [[word for word in tokens if word != secret] for tokens, secret in zip(view.records, secrets, strict=True)]
    nearest = view.nearest(rests, 1)[:, 0].tolist()
    tops = Counter(row[0] for row in view.rows if row)
    hits = [row >= 0 and view.rows[row][0] == secret for row, secret in zip(nearest, secrets, strict=True)]
    return Outcome(np.array(hits), np.array([tops[secret] / len(view.rows) if secret else 0.0 for secret in secrets]))


def infer_label(view: WordView) -> Outcome:
    """A record's label is guessed from its text: that of the nearest synthetic row.

    Most of it is what the labels mean, which the control shows. The baseline takes the label of a random row.
    """
    nearest, rows = view.nearest(view.records, 1)[:, 0].tolist(), view.released.synthetic
    labels = [record.label for record in view.released.records]
    shares = Counter(row.label for row in rows)
    hits = [row >= 0 and rows[row].label == label for row, label in zip(nearest, labels, strict=True)]
    return Outcome(np.array(hits), np.array([shares[label] / len(rows) for label in labels]))


# --- statistics ------------------------------------------------------------------------------------------------


def residual_risk(main: Rate, control: Rate) -> Estimate:
    """(main - control) / (1 - control), with an interval from the Wilson intervals of both rates.

    Source: Giomi et al. 2023. The distances of each rate to its limits are added in squares, each
    weighted by the risk's derivative (Newcombe 1998, method 10; Zou and Donner 2008). NaN, from -infinity to 1, where
    the control always succeeds: then nothing is left to be at risk.
    """
    left = 1.0 - control.rate
    if left <= 0.0:
        return Estimate(math.nan, -math.inf, 1.0)
    value = (main.rate - control.rate) / left
    by_control = (1.0 - main.rate) / left**2
    down = math.hypot((main.rate - main.low) / left, (control.high - control.rate) * by_control)
    up = math.hypot((main.high - main.rate) / left, (control.rate - control.low) * by_control)
    return Estimate(value, value - down, min(1.0, value + up))


def risk_cap(control: Rate, best: BestAttack) -> float:
    """The largest risk that a proven curve allows, at any control rate within its interval.

    Guarantee: for each unit, success is a test of whether the unit was read, so its probability is at most
    best(probability without the unit). The curve is concave, so the same holds of the means over units. It also
    ends in (1, 1), so that (best(c) - c) / (1 - c) grows with c: the upper end of the interval has the largest.

    Args:
        control: the control's rate.
        best: false-positive rate -> largest true-positive rate; concave.
    """
    rate = min(control.high, _ALMOST_ALWAYS)
    return min(1.0, max(0.0, (best(rate) - rate) / (1.0 - rate)))


def meeting_chance(rows: int, count: int) -> float:
    """Probability that two random sets of `count` of the rows have one in common.

    >>> round(meeting_chance(100, 5), 4)
    0.2304
    """
    count = min(count, rows)
    if 2 * count > rows:
        return 1.0
    apart = math.lgamma(rows - count + 1) * 2 - math.lgamma(rows - 2 * count + 1) - math.lgamma(rows + 1)
    return 1.0 - math.exp(apart)


def _evidence(kind: str, outcome: Outcome, units: Units, best: BestAttack | None, confidence: float) -> Evidence:
    hits, chance = units.any(outcome.hits), _any_chance(outcome.chance, units)
    main, control = (_rate(side, confidence) for side in (hits[: units.members], hits[units.members :]))
    cap = None if best is None else risk_cap(control, best)
    return Evidence(kind, main, control, float(chance[: units.members].mean()), residual_risk(main, control), cap)


def _any_chance(chance: np.ndarray, units: Units) -> np.ndarray:
    """The probability that the baseline, which guesses anew for each record, succeeds on some record of each unit."""
    if units.kind == "record":
        return chance
    missed = np.ones(len(units))
    np.multiply.at(missed, units.owner, 1.0 - chance)
    return 1.0 - missed


def _rate(hits: np.ndarray, confidence: float) -> Rate:
    count = int(hits.sum())
    return Rate(count, len(hits), *wilson(count, len(hits), confidence))


def _places(records: Sequence[Sequence[str]]) -> Mapping[str, frozenset[int]]:
    """Word -> the records that have it."""
    places: dict[str, set[int]] = {}
    for index, tokens in enumerate(records):
        for word in tokens:
            places.setdefault(word, set()).add(index)
    return {word: frozenset(found) for word, found in places.items()}


def _alone(predicates: Sequence[tuple[str, ...]], places: Mapping[str, frozenset[int]], units: Units) -> np.ndarray:
    """Which records are of a unit that is the only one of which some predicate holds, bool (records,)."""
    found, nowhere = np.zeros(len(units), dtype=bool), frozenset[int]()
    for predicate in predicates:
        fewest, *others = sorted((places.get(word, nowhere) for word in predicate), key=len)
        matched = {int(units.owner[record]) for record in fewest.intersection(*others)}
        if len(matched) == 1:
            found[matched.pop()] = True
    return found[units.owner]


def _shuffled(predicates: Sequence[tuple[str, ...]], rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Predicates of the same sizes, from the same words in random order."""
    pool = [word for predicate in predicates for word in predicate]
    turned = iter(rng.permutation(len(pool)).tolist())
    return [tuple(pool[next(turned)] for _ in predicate) for predicate in predicates]
