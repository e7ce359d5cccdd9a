"""Evidence on the three criteria of the European data-protection authorities: singling out, linkability, inference.

Each is an attack on a record by means of the released rows. Against members it is the main attack; against records that
nothing read it is the control, and shows what follows from the population alone; a baseline guesses without looking.
The risk is the success of the main attack beyond the control: (main - control) / (1 - control), after Giomi et al.
2023.

An attack on a record is a function of the release and of all guess records together, never of their coins. So it is a
test of membership, and a proven trade-off curve caps its success on members, given its success on the control. Where a
person is the unit of privacy, an attack succeeds on a person if it succeeds on any of their rows, and rates are of
persons.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, ClassVar

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

from palimpsest import validate
from palimpsest.audit.membership import Control
from palimpsest.audit.statistics import Estimate, Rate
from palimpsest.audit.units import Released, Units, cut, plant
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.records.segment import words

BestAttack = Callable[[float], float]  # false-positive rate -> largest true-positive rate that the proof allows

_SIZES = (1, 2, 3, 4)  # words of a predicate
_NO_WORD = " "  # the rarest word of a record without any: nobody guesses it
_AT_ONCE = 256  # records compared with all rows at once
_ALMOST_ALWAYS = 1.0 - 1e-6  # a control rate beyond which nothing is left to be at risk


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of one attack for each record, members first."""

    hits: np.ndarray  # whether it succeeded, bool (records,)
    chance: np.ndarray  # the probability that the baseline does, (records,)


@dataclass(frozen=True)
class Evidence(Plain):
    """One attack, its control and its baseline."""

    keys: ClassVar = ("criterion", "main", "control", "baseline", "risk", "inconclusive", "cap", "informed", "planted")
    criterion: str  # "singling out", "linkability" or "inference"
    main: Rate  # member units on which the attack succeeds
    control: Rate  # the other units on which it does
    baseline: float  # share of member units on which a guess that does not look at the rows would, expected
    # (main - control) / (1 - control); below 0 where the control did better. None where the control always succeeds:
    # then nothing is left to be at risk, and the attack shows nothing.
    risk: Estimate | None
    # largest risk that the proven curve allows at any control rate within its interval; None without a curve.
    cap: float | None
    planted: Estimate | None  # the risk of near copies of such records, which the attack must find; None without any

    @property
    def inconclusive(self) -> str | None:
        """The reason why the attack shows nothing."""
        if self.risk is None:
            return "the attack succeeds on all that were never read too"
        found = self.planted is not None and self.planted.low > 0.0
        return None if found else "the attack does not tell near copies of such records, planted to try it, from others"

    @property
    def informed(self) -> bool:
        """Whether the attack beats the baseline: an attack that does not shows nothing, whatever its risk."""
        return self.main.rate > self.baseline


@dataclass(frozen=True)
class AnonymityAudit(PlainFile):
    """Private zone: the evidence on each criterion, after the control of the coins."""

    keys: ClassVar = ("unit", "members", "nonmembers", "coins", "attacks", "claim")
    members: int  # units that were read and are guessed about
    nonmembers: int  # units that were not read
    coins: Annotated[Control, At("control")]  # the model-free control; where it fails, main and control do not compare
    attacks: Mapping[str, Evidence]
    claim: float | None  # epsilon of the release; None where it claims none
    unit: str  # "record" or "person"


def audit_anonymity(
    released: Released,
    coins: Control,
    *,
    labelled: bool,
    neighbours: int,
    claim: float | None,
    best: BestAttack | None,
    seed: int,
) -> AnonymityAudit:
    """Attack every guess record by each criterion.

    Args:
        coins: the model-free control on the same units.
        labelled: whether labels come from a public list: then they are inferred too.
        neighbours: synthetic rows that each half of a record is linked to.
        claim: the epsilon that the release claims; None where it claims none.
        best: the proven curve; None where there is none.
        seed: seeds the baseline of singling out.

    Raises:
        DataError: the synthetic texts contain no word.
    """
    copies, units = plant(released, seed, cut), released.units
    tried = _attack(copies, labelled, neighbours, seed, None) if any(map(words, copies.texts)) else {}
    evidence = {
        name: replace(one, planted=tried[name].risk if name in tried else None)
        for name, one in _attack(released, labelled, neighbours, seed, best).items()
    }
    return AnonymityAudit(units.members, len(units) - units.members, coins, evidence, claim, units.kind)


def _attack(
    released: Released, labelled: bool, neighbours: int, seed: int, best: BestAttack | None
) -> dict[str, Evidence]:
    view = WordView.of(released)
    outcomes = {
        "singling_out": ("singling out", single_out(view, seed)),
        "linkability": ("linkability", link(view, neighbours)),
        "inference_word": ("inference", infer_word(view)),
    }
    if labelled:
        outcomes["inference_label"] = ("inference", infer_label(view))
    return {name: _evidence(kind, outcome, released.units, best) for name, (kind, outcome) in outcomes.items()}


# --- attacks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WordView:
    """The texts as words, ordered by rarity as known to an attacker who has public text."""

    released: Released
    records: Sequence[Sequence[str]]  # words of each guess record, in the order of the text
    rows: Sequence[Sequence[str]]  # distinct words of each synthetic row, rarest first
    rarity: Mapping[str, int]  # word -> number of public texts that have it
    vectors: TfidfVectorizer  # TF-IDF of words, fitted on the synthetic rows
    vector_rows: csr_matrix  # of the synthetic rows, (rows, d)

    @classmethod
    def of(cls, released: Released) -> "WordView":
        """Read the texts. Raises DataError if the synthetic texts contain no word."""
        rarity = Counter(chain.from_iterable(set(words(text)) for text in released.public))
        texts = released.texts
        if not any(words(text) for text in texts):
            raise DataError("The synthetic texts hold no word.", "Look at the generator: its training may have failed.")
        vectors = TfidfVectorizer(analyzer=words, sublinear_tf=True, dtype=np.float32)
        vector_rows = vectors.fit_transform(texts)
        rows = [sort_by_rarity(words(text), rarity) for text in texts]
        return cls(released, [words(text) for text in released.private], rows, rarity, vectors, vector_rows)

    def find_nearest(self, tokens: Sequence[Sequence[str]], count: int) -> np.ndarray:
        """The `count` nearest synthetic rows of each list of words, int64 (lists, count); -1 where none shares a word.

        The order of the rows breaks ties.
        """
        asked, count = self.vectors.transform([" ".join(one) for one in tokens]), min(count, len(self.rows))
        blocks = []
        for start in range(0, asked.shape[0], _AT_ONCE):
            near = (asked[start : start + _AT_ONCE] @ self.vector_rows.T).toarray()
            order = np.argsort(-near, axis=1, kind="stable")[:, :count]
            blocks.append(np.where(np.take_along_axis(near, order, axis=1) > 0.0, order, -1))
        return np.concatenate(blocks)


def sort_by_rarity(tokens: Sequence[str], rarity: Mapping[str, int]) -> list[str]:
    """Return the distinct words, those in the fewest public texts first; ties go to longer words, then by alphabet."""
    return sorted(set(tokens), key=lambda word: (rarity.get(word, 0), -len(word), word))


def single_out(view: WordView, seed: int) -> Outcome:
    """Single out a record if a predicate from a synthetic row holds for it and for no other guess record.

    A person is singled out, with all their records, if a predicate holds only for records of theirs, one or several.
    The predicates of a row are "has these words", for its 1, 2, 3 and 4 rarest words. The baseline puts the same words
    together at random.
    """
    predicates = sorted({tuple(row[:size]) for row in view.rows for size in _SIZES if len(row) >= size})
    places = _places(view.records)
    mixed = _shuffle_words(predicates, np.random.default_rng(seed))
    hits, chance = (_find_singled_out(chosen, places, view.released.units) for chosen in (predicates, mixed))
    return Outcome(hits, chance.astype(np.float64))


def link(view: WordView, neighbours: int) -> Outcome:
    """Link the two halves of a record if they have one of their nearest synthetic rows in common.

    An attacker has the first half of a text from one source and the second from another, and asks the release whether
    one person wrote both. The baseline links each half to random rows.
    """
    validate.require_positive(neighbours=neighbours)
    middles = [len(tokens) // 2 for tokens in view.records]
    halves = zip(*((tokens[:at], tokens[at:]) for tokens, at in zip(view.records, middles, strict=True)), strict=True)
    first, second = (view.find_nearest(half, neighbours) for half in halves)
    met = (first[:, :, None] == second[:, None, :]) & (first[:, :, None] >= 0)
    return Outcome(met.any(axis=(1, 2)), np.full(len(first), meeting_chance(len(view.rows), neighbours)))


def infer_word(view: WordView) -> Outcome:
    """Guess a record's rarest word from the rest of it: the rarest word of the nearest synthetic row.

    The baseline takes the rarest word of a random row.
    """
    secrets = [next(iter(sort_by_rarity(tokens, view.rarity)), _NO_WORD) for tokens in view.records]
    rests = [[word for word in tokens if word != secret] for tokens, secret in zip(view.records, secrets, strict=True)]
    return _guess_secrets(view, rests, secrets, [next(iter(row), "") for row in view.rows])


def infer_label(view: WordView) -> Outcome:
    """Guess a record's label from its text: the label of the nearest synthetic row.

    Most of its success comes from the meaning of the labels, which the control shows. The baseline takes the label of a
    random row.
    """
    labels = [record.label for record in view.released.records]
    return _guess_secrets(view, view.records, labels, [row.label for row in view.released.synthetic])


def _guess_secrets(
    view: WordView, known: Sequence[Sequence[str]], secrets: Sequence[str | None], guesses: Sequence[str | None]
) -> Outcome:
    """Guess each record's secret as that of the row nearest to its known part, or, as a baseline, of any row."""
    nearest, shares = view.find_nearest(known, 1)[:, 0].tolist(), Counter(guesses)
    hits = [row >= 0 and guesses[row] == secret for row, secret in zip(nearest, secrets, strict=True)]
    return Outcome(np.array(hits), np.array([shares[secret] / len(guesses) for secret in secrets]))


# --- statistics ------------------------------------------------------------------------------------------------


def residual_risk(main: Rate, control: Rate) -> Estimate | None:
    """(main - control) / (1 - control), with an interval from the Wilson intervals of both rates.

    Source: Giomi et al. 2023. The distances of each rate to its limits are added in squares, each weighted by the
    risk's derivative (Newcombe 1998, method 10; Zou and Donner 2008). None where the control always succeeds.
    """
    left = 1.0 - control.rate
    if left <= 0.0:
        return None
    value = (main.rate - control.rate) / left
    by_control = (1.0 - main.rate) / left**2
    down = math.hypot((main.rate - main.low) / left, (control.high - control.rate) * by_control)
    up = math.hypot((main.high - main.rate) / left, (control.rate - control.low) * by_control)
    return Estimate(value, value - down, min(1.0, value + up))


def risk_cap(control: Rate, best: BestAttack) -> float:
    """The largest risk that a proven curve allows, at any control rate within its interval.

    Guarantee: for each unit, success is a test of whether the unit was read, so its probability is at most
    best(probability without the unit). The curve `best` is concave, so the same holds of the means over units. It also
    ends in (1, 1), so that (best(c) - c) / (1 - c) grows with c: the upper end of the interval has the largest.

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


def _evidence(kind: str, outcome: Outcome, units: Units, best: BestAttack | None) -> Evidence:
    hits, chance = units.any_hit(outcome.hits), _any_chance(outcome.chance, units)
    sides = np.split(hits, [units.members])
    main, control = (Rate.wilson(int(side.sum()), len(side)) for side in sides)
    cap = None if best is None else risk_cap(control, best)
    baseline = float(chance[: units.members].mean())
    return Evidence(kind, main, control, baseline, residual_risk(main, control), cap, planted=None)


def _any_chance(chance: np.ndarray, units: Units) -> np.ndarray:
    """The probability that the baseline, which guesses anew for each record, succeeds on some record of each unit."""
    if units.kind == "record":
        return chance
    missed = np.ones(len(units))
    np.multiply.at(missed, units.owner, 1.0 - chance)
    return 1.0 - missed


def _places(records: Sequence[Sequence[str]]) -> Mapping[str, frozenset[int]]:
    """Word -> the records that have it."""
    places: dict[str, set[int]] = defaultdict(set)
    for index, tokens in enumerate(records):
        for word in tokens:
            places[word].add(index)
    return {word: frozenset(holders) for word, holders in places.items()}


def _find_singled_out(
    predicates: Sequence[tuple[str, ...]], places: Mapping[str, frozenset[int]], units: Units
) -> np.ndarray:
    """Return which records belong to a unit that is the only one to satisfy some predicate, bool (records,)."""
    alone, nowhere = np.zeros(len(units), dtype=bool), frozenset[int]()
    for predicate in predicates:
        fewest, *others = sorted((places.get(word, nowhere) for word in predicate), key=len)
        matched = {int(units.owner[record]) for record in fewest.intersection(*others)}
        if len(matched) == 1:
            alone[matched.pop()] = True
    return alone[units.owner]


def _shuffle_words(predicates: Sequence[tuple[str, ...]], rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Predicates of the same sizes, from the same words in random order."""
    pool = [word for predicate in predicates for word in predicate]
    turned = iter(rng.permutation(len(pool)).tolist())
    return [tuple(pool[next(turned)] for _ in predicate) for predicate in predicates]
