"""The units of the audited records, and near copies of records that an attack must find before its silence counts.

Coins are flipped for units of privacy, so attacks are scored and counted by unit. A unit is one record, or a person
with all their kept rows. A person's rows are read together or not at all, and they resemble each other. Counted one by
one, they would be guesses that share one coin: intervals would be too narrow, p values too small, and the bound of one
run, which needs independent coins (Steinke et al. 2023), would not hold.

An attack that cannot read texts of a kind finds nothing in any release. So each one is tried on rows that do repeat
records of the data's own language (`Planted`), and where it does not find them it cannot judge.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from palimpsest.audit.statistics import Estimate, auc_with_interval
from palimpsest.errors import DataError
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.segment import find_words

Rule = Literal["mean", "max"]

# How the scores of a person's rows are combined, the same for members and others, fixed before any score is seen.
# mean: a training moves all rows of a person a little, and the mean of their log ratios has less noise than each one.
#   Their sum would mostly tell how many rows a person has, because a fitted model likes every text of the kind better
#   than the public one does, trained on or not.
# max: released rows repeat one row of a person and not the others; the mean would bury that one.
RULES: Mapping[str, Rule] = {
    "loss": "mean",
    "reference": "mean",
    "zlib": "mean",
    "min_k": "mean",
    "lira": "mean",
    "rmia": "mean",
    "ngram": "mean",
    "label": "mean",
    "prompt": "mean",
    "nearest_words": "max",
    "nearest_characters": "max",
    "nearest_embeddings": "max",
    "rare": "max",  # it is the person's already
}
_MOST = 100  # records that are copied, and as many that are not
_PUBLIC = 2000  # public texts that copies are compared with
_MISTYPED = 0.1  # share of a copy's signs that are replaced


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of each audited record."""

    # unit of each record, the members' records first; numbers follow the units' first records, so the members' are the
    # smallest. int64 (records,).
    owner: np.ndarray
    members: int  # number of units that are members
    kind: str  # "record" or "person"

    @classmethod
    def of(cls, members: Sequence[str | None], others: Sequence[str | None]) -> "Units":
        """Assign units by the person behind each record of both sides; None is a unit of its own.

        Raises:
            DataError: a person has records on both sides, so that one coin does not say which side they are on.
        """
        persons, number = [*members, *others], dict[str | int, int]()
        if {*members} & {*others} - {None}:
            raise DataError(
                "A person has rows among the members and among the others.",
                "Run `preprocess` again: one coin decides for all rows of a person.",
            )
        owner = [number.setdefault(row if who is None else who, len(number)) for row, who in enumerate(persons)]
        kind = "record" if all(who is None for who in persons) else "person"
        return cls(np.array(owner, dtype=np.int64), len(set(owner[: len(members)])), kind)

    @classmethod
    def of_records(cls, members: int, others: int) -> "Units":
        """Every record is a unit of its own."""
        return cls(np.arange(members + others), members, "record")

    def __len__(self) -> int:
        """Number of units."""
        return int(self.owner.max(initial=-1)) + 1

    def score(self, values: np.ndarray, rule: Rule) -> np.ndarray:
        """Score each unit, only by its records' scores: (records,) -> (units,). A single record keeps its score."""
        if rule == "mean":
            return np.bincount(self.owner, weights=values) / np.bincount(self.owner)
        largest = np.full(len(self), -np.inf)
        np.maximum.at(largest, self.owner, values)
        return largest

    def any_hit(self, hits: np.ndarray) -> np.ndarray:
        """Return whether some record of each unit was hit: bool (records,) -> (units,)."""
        return np.bincount(self.owner, weights=hits) > 0

    def documents(self, texts: Sequence[str]) -> list[str]:
        """Join all texts of each unit into one, in their order."""
        written: list[list[str]] = [[] for _ in range(len(self))]
        for unit, text in zip(self.owner.tolist(), texts, strict=True):
            written[unit].append(text)
        return ["\n".join(own) for own in written]


@dataclass(frozen=True, eq=False)
class Guessed:
    """The records that the audits may guess about."""

    members: Sequence[Record]  # records that were trained on
    others: Sequence[Record]  # records that nothing was fitted on
    units: Units  # whose they are

    @classmethod
    def of(cls, train: Sequence[SplitRow], holdout: Sequence[SplitRow]) -> "Guessed":
        """Select the rows of both splits that have `guess`."""
        members, others = ([row for row in side if row.guess] for side in (train, holdout))
        units = Units.of([row.person for row in members], [row.person for row in others])
        records, other_records = ([Record(row.text, row.label) for row in side] for side in (members, others))
        return cls(records, other_records, units)

    @property
    def sides(self) -> tuple[Sequence[Record], Sequence[Record]]:
        """The members, and the others."""
        return self.members, self.others

    @property
    def texts(self) -> tuple[list[str], list[str]]:
        """The texts of members and of others."""
        return [row.text for row in self.members], [row.text for row in self.others]

    @property
    def documents(self) -> tuple[list[str], list[str]]:
        """All texts of each member joined into one, and those of each other unit."""
        written = self.units.documents([*self.texts[0], *self.texts[1]])
        return written[: self.units.members], written[self.units.members :]


@dataclass(frozen=True, eq=False)
class Scores:
    """One number per record, or per unit of privacy, larger for "rather a member"."""

    members: np.ndarray  # shape (m,)
    nonmembers: np.ndarray  # shape (n,)

    @property
    def joined(self) -> np.ndarray:
        """The scores of members, then of non-members; shape (m + n,)."""
        return np.concatenate([self.members, self.nonmembers])

    @classmethod
    def split(cls, values: np.ndarray, members: int) -> "Scores":
        """Make scores from the values of members, followed by those of non-members."""
        return cls(values[:members], values[members:])

    def of_units(self, units: Units, attack: str) -> "Scores":
        """Combine the scores of each unit's records into one, by the attack's rule."""
        return Scores.split(units.score(self.joined, RULES[attack]), units.members)


@dataclass(frozen=True, eq=False)
class Released:
    """The release and the texts it is compared with: all that an attacker without access to a model has."""

    synthetic: Sequence[Record]  # the released rows
    members: Sequence[Record]  # records that the method read and that may be guessed about
    nonmembers: Sequence[Record]  # those that it did not read
    # public texts; some score is always compared with theirs, as text of one kind is alike anyway.
    public: Sequence[str]
    whose: Units | None = None  # the units that the guess records are of; None: each is one of its own

    def __post_init__(self) -> None:
        if not self.synthetic:
            raise DataError("There are no synthetic texts.", "Generate some before the audit.")
        if not self.members or not self.nonmembers:
            raise DataError(
                "The audit subset has no member or no non-member that may be guessed about.",
                "Enlarge the audit subset, or remove near-duplicates from the private file.",
            )

    @property
    def records(self) -> list[Record]:
        """The records of members, then of non-members."""
        return [*self.members, *self.nonmembers]

    @property
    def texts(self) -> list[str]:
        """The texts of the released rows."""
        return [row.text for row in self.synthetic]

    @property
    def private(self) -> list[str]:
        """The texts of `records`."""
        return [row.text for row in self.records]

    @property
    def units(self) -> Units:
        """The units of `records`."""
        return Units.of_records(len(self.members), len(self.nonmembers)) if self.whose is None else self.whose

    def scores(self, values: np.ndarray) -> Scores:
        """Values of `records`, shape (records,), as the scores of both sides."""
        return Scores.split(values, len(self.members))

    def draw_public(self, seed: int) -> np.ndarray:
        """Indices of as many public texts as synthetic rows, or of all: the nearest of more texts would be nearer."""
        return np.sort(np.random.default_rng(seed).permutation(len(self.public))[: len(self.synthetic)])


def draw_sides(
    records: Sequence[Record], seed: int | np.random.Generator, most: int = _MOST
) -> tuple[list[Record], list[Record]]:
    """Draw records to plant, at most so many, and as many others."""
    order = np.random.default_rng(seed).permutation(len(records))
    most = min(most, len(order) // 2)
    return [records[place] for place in order[:most]], [records[place] for place in order[most : 2 * most]]


def _mistype(text: str, rng: np.random.Generator) -> str:
    """Return the text with every tenth sign, on average, replaced by another one of the same text."""
    signs = np.array(list(text))
    letters = np.flatnonzero([sign.isalpha() for sign in signs])
    wrong = letters[rng.random(len(letters)) < _MISTYPED]
    if len(wrong):
        signs[wrong] = signs[rng.choice(letters, len(wrong))]
    return "".join(signs.tolist())


def cut(text: str, _: np.random.Generator) -> str:
    """Return the text without its last tenth of words, one at least; a single word loses its second half."""
    starts = [start for start, _ in find_words(text)]
    return text[: starts[-max(1, len(starts) // 10)]] if len(starts) > 1 else text[: len(text) // 2]


def plant(released: Released, seed: int, spoil: Callable[[str, np.random.Generator], str] = _mistype) -> Released:
    """Return a release of near copies of some records: these are its members, as many other records are not.

    With copies to the letter an attack would find texts that it takes for a single word, so each copy is spoilt. Coins
    and rows of the given release play no part.
    """
    rng = np.random.default_rng(seed)
    copied, others = draw_sides(released.records, rng)
    public = [released.public[place] for place in rng.permutation(len(released.public))[:_PUBLIC]]
    return Released([Record(spoil(one.text, rng), one.label) for one in copied], copied, others, public)


def find_planted(attacks: Mapping[str, Scores], model: str = "encoder") -> dict[str, Estimate]:
    """Return how well each attack tells planted records from others: its AUC, by its scores on these.

    Args:
        model: the key, among `models`, of the model by which the attacks read texts.

    Raises:
        DataError: no attack tells them, so none could have seen a leak.
    """
    found = {name: auc_with_interval(scores.members, scores.nonmembers) for name, scores in attacks.items()}
    if not any(map(finds_copies, found.values())):
        raise DataError(
            "No attack finds such records, planted to try it, so none can judge.",
            f"Name a model for the language of the texts (models.{model}), or audit more or longer texts.",
        )
    return found


def finds_copies(planted: Estimate) -> bool:
    """Tell whether an attack found what was planted; its silence says nothing where it did not."""
    return planted.low > 0.5
