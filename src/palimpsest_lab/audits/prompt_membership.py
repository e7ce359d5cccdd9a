"""Membership inference through the prompts of an in-context learner (Duan et al. 2023): does a judge know members?

A judge answers each guess record behind one demonstration. If the demonstration is the record itself, its own label
becomes likelier than a stranger's: that control shows that the attack works. Behind a synthetic row members and others
should fare alike. Zhao et al. compare the two as densities (figure 5 of "Generate Synthetic Text Approximating the
Private Distribution with Differential Privacy").

A score is a function of the released rows, a public model and the guess records of both sides taken together. No score
is fitted on a coin, so the bound of one run holds for it (`audit_membership`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, TypeAlias

import numpy as np

from palimpsest.audit.membership import Attack, MembershipAudit, Verdict, measure_attack
from palimpsest.audit.units import Guessed, Scores
from palimpsest.errors import DataError
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest_lab.audits.incontext import draw_rows

ATTACK = "prompt"  # the name in `units.RULES`
BINS = 20  # of a density, from 0 to 1
_LEAST = 1e-9  # a probability this near to 0 or 1 is cut, so that its log-odds are finite

Own: TypeAlias = Callable[[Sequence[Record], Sequence[Record]], np.ndarray]
"""Demonstrations and items -> the judge's probability of each item's own label, (items,)."""


@dataclass(frozen=True)
class Density(Plain):
    """How many units have a probability of their own label in each of `BINS` equal parts of 0 to 1."""

    keys: ClassVar = ("members", "others")
    members: tuple[int, ...]
    others: tuple[int, ...]

    @classmethod
    def of(cls, scores: Scores) -> "Density":
        """Build both densities from the probabilities of both sides."""
        sides = (np.histogram(side, bins=BINS, range=(0.0, 1.0))[0] for side in (scores.members, scores.nonmembers))
        return cls(*(tuple(side.tolist()) for side in sides))


@dataclass(frozen=True)
class PromptControl(Plain):
    """The same attack where the record itself is the demonstration; others stand behind a member of their label."""

    keys: ClassVar = ("attack", "works", "density")
    attack: Attack
    density: Density

    @property
    def works(self) -> bool:
        """True if the judge knows a record that it has just read; else its answers elsewhere show nothing."""
        return self.attack.auc.low > 0.5


@dataclass(frozen=True, eq=False)
class PromptMembershipAudit(PlainFile):
    """Private zone: the attack behind synthetic rows, beside the one that must succeed."""

    keys: ClassVar = ("membership", "density", "shown", "verdict")
    membership: Annotated[MembershipAudit, At()]  # behind one synthetic row
    density: Density  # of the probabilities behind it, their mean over the draws
    shown: PromptControl

    @property
    def verdict(self) -> Verdict:
        """`inconclusive` if the judge does not know a record in its own prompt: it could not have seen a leak.

        A refuted claim is refuted whatever that control did.
        """
        found = self.membership.verdict
        return found if found == "refuted" or self.shown.works else "inconclusive"

    def among(self, audits: int) -> "PromptMembershipAudit":
        """Return this audit as one of so many of the same claim (`MembershipAudit.among`)."""
        return replace(self, membership=self.membership.among(audits))


@dataclass(frozen=True, eq=False)
class Prompted:
    """A judge's probabilities of own labels, without a demonstration and behind one."""

    guess: Guessed
    alone: np.ndarray  # of each guess record without a demonstration, members first; (records,)
    behind_rows: np.ndarray  # of each record behind each drawn synthetic row, (draws, records)
    pairs: np.ndarray  # a member, and another record of its label, by their places; int64 (pairs, 2)
    behind_member: np.ndarray  # of both behind that member, (pairs, 2)

    @property
    def scores(self) -> Scores:
        """The mean gain, over the draws, that a synthetic row adds to the log-odds of a record's own label."""
        gained = (log_odds(self.behind_rows) - log_odds(self.alone)).mean(axis=0)
        return Scores.split(gained, len(self.guess.members))

    @property
    def density(self) -> Density:
        """The density behind synthetic rows: one number a unit, the mean over its records and the draws."""
        means = Scores.split(self.behind_rows.mean(axis=0), len(self.guess.members))
        return Density.of(means.of_units(self.guess.units, ATTACK))

    @property
    def shown(self) -> PromptControl:
        """The control: the gain that a member adds to its own log-odds, beside the gain it adds to another record's."""
        gained = log_odds(self.behind_member) - log_odds(self.alone[self.pairs])
        return PromptControl(measure_attack(Scores(*gained.T)), Density.of(Scores(*self.behind_member.T)))


def ask(own: Own, rows: Sequence[Record], guess: Guessed, *, draws: int, shown: int, seed: int) -> Prompted:
    """Ask a judge about every guess record behind synthetic rows, and about some members behind themselves.

    Args:
        own: the judge.
        rows: the labelled synthetic rows.
        draws: how many of them are shown, one at a time; each label is equally likely.
        shown: how many members are asked about behind themselves, at most.
        seed: chooses these rows and these members.

    Raises:
        DataError: there are no synthetic rows, or no member has a label that another record has.
    """
    records = [*guess.members, *guess.others]
    pairs = pair_records(guess, shown, seed)
    if not rows or not len(pairs):
        raise DataError(
            "There is no synthetic row to show, or no audit record with the label of a member.",
            "Generate rows, or enlarge the audit subset (audit.size).",
        )
    labels = [row.label or "" for row in rows]
    chosen = [rows[draw_rows(labels, 1, True, seed, draw)[0]] for draw in range(draws)]
    behind = [own([row], records) for row in track(chosen, name="prompts", total=draws, private=True)]
    both = track(pairs.tolist(), name="control of prompts", total=len(pairs), private=True)
    controls = [own([records[member]], [records[member], records[other]]) for member, other in both]
    return Prompted(guess, own([], records), np.stack(behind), pairs, np.stack(controls))


def pair_records(guess: Guessed, most: int, seed: int) -> np.ndarray:
    """Pair members with another record of their label, no unit in two pairs; int64 (pairs, 2).

    A record of another label could be told from the member by the label that the demonstration shows.
    """
    rng, records = np.random.default_rng(seed), [*guess.members, *guess.others]
    order = rng.permutation(len(records))
    first = np.unique(guess.units.owner[order], return_index=True)[1]
    waiting: dict[str, list[int]] = {}
    one_each = rng.permutation(order[first]).tolist()
    for place in one_each:
        if place >= len(guess.members):
            waiting.setdefault(records[place].label or "", []).append(place)
    members = (place for place in one_each if place < len(guess.members))
    pairs = [(place, others.pop()) for place in members if (others := waiting.get(records[place].label or ""))]
    return np.array(pairs[:most], dtype=np.int64).reshape(-1, 2)


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return log p / (1 - p), finite.

    >>> log_odds(np.array([0.5, 1.0])).round(3).tolist()
    [0.0, 20.723]
    """
    kept = np.clip(probabilities, _LEAST, 1.0 - _LEAST)
    return np.log(kept) - np.log1p(-kept)
