"""`custext`: private rows with every word replaced, a baseline that protects words and not records.

It is there to be measured beside the others (Chen et al. 2023). Its rows must never be released.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dp_accounting import NonPrivateDpEvent

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.baselines.custext.settings import CusTextSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.privacy.words import ReplacedWords, WordSets
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_NAME = "replaced_words"


@dataclass(frozen=True)
class Replaced:
    """What a fit of `custext` leaves: one row for each private row that has a word of the map.

    Attributes:
        rows: in the order of the private rows. Not private.
        empty: private rows without a word of the map, which are left out.
    """

    rows: Sequence[Record]
    empty: int

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each label, "" for none."""
        return dict(Counter(row.label or "" for row in self.rows))


class CusText:
    """The private rows, word by word drawn anew from a public map.

    Guarantee: none for records; for words that of `ReplacedWords`. `fit` asks one query whose event is non-private, so
    the ledger refuses it for a release, and a plan refuses a finite epsilon, which would name a guarantee that the rows
    do not have.

    Attributes:
        settings: how words are replaced.
        schema: what is public about the data set.
        sets: the public map (`models.word_map`); a plan needs none.
    """

    def __init__(self, settings: CusTextSettings, schema: PublicSchema, sets: WordSets | None = None) -> None:
        self.settings, self.schema, self.sets = settings, schema, sets

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask; no row is read.

        Raises:
            ParamsError: the budget is finite, or the map would not hold one set.
        """
        if not math.isinf(budget.epsilon):
            raise ParamsError(
                f"custext protects words, not records; epsilon {budget.epsilon:g} would claim what it does not give.",
                "Write `purpose: reference` and `epsilon: .inf`; token_epsilon is its own.",
            )
        if self.settings.neighbours > self.settings.vocabulary:
            raise ParamsError(
                f"A vocabulary of {self.settings.vocabulary} words holds no set of {self.settings.neighbours}.",
                "Raise vocabulary, or lower neighbours.",
            )
        numbers: dict[str, float | int | str] = {
            "token_epsilon": self.settings.token_epsilon,
            "neighbours": self.settings.neighbours,
            "vocabulary": self.settings.vocabulary,
        }
        return Plan("custext", budget, (PlannedQuery(_NAME, NonPrivateDpEvent()),), numbers)

    def fit(self, view: View, plan: Plan) -> Replaced:
        """Ask for the rows with their words replaced.

        Raises:
            DataError: there is no map; nothing is asked then.
        """
        if self.sets is None:
            raise DataError("There is no map of public words.", "Make one from public texts.")
        rows = view.ask(ReplacedWords(self.sets, float(plan.numbers["token_epsilon"]), _NAME))
        kept = [row for row in rows if row.text]
        return Replaced(kept, len(rows) - len(kept))

    def sample(self, artifact: Replaced, counts: Mapping[str, int]) -> Iterator[Record]:
        """The rows of each label, at most as many as `counts` says, in the order of the private rows."""
        for label, count in counts.items():
            own = [row for row in artifact.rows if (row.label or "") == label]
            yield from own[:count]
