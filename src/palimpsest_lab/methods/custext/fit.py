"""`custext`: private rows with every word replaced, a baseline that protects words and not records.

It is there to be measured beside the others (Chen et al. 2023). Its rows must never be released.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp_accounting.dp_event import NonPrivateDpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget, Made, Plan
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.query import View
from palimpsest.privacy.words import ReplacedWords, WordSets
from palimpsest.records.record import Record
from palimpsest_lab.methods.custext.declaration import CusTextSettings

_QUERY = "replaced_words"


def plan(settings: CusTextSettings, budget: Budget) -> Plan:
    """Plan the queries of a fit. Raises ParamsError if the budget is finite, or the map would not hold one set."""
    if not math.isinf(budget.epsilon):
        raise ParamsError(
            f"custext protects words, not records; epsilon {budget.epsilon:g} would claim what it does not give.",
            "Write `purpose: reference` and `epsilon: .inf`; token_epsilon is its own.",
        )
    if settings.neighbours > settings.vocabulary:
        raise ParamsError(
            f"A vocabulary of {settings.vocabulary} words holds no set of {settings.neighbours}.",
            "Raise vocabulary, or lower neighbours.",
        )
    numbers: dict[str, float | int | str] = {
        "token_epsilon": settings.token_epsilon,
        "neighbours": settings.neighbours,
        "vocabulary": settings.vocabulary,
    }
    return Plan("custext", budget, (PlannedQuery(_QUERY, NonPrivateDpEvent(), versions=versions_of(_QUERY)),), numbers)


@dataclass(frozen=True)
class CusText:
    """The private rows, each word drawn anew from a public map.

    Guarantee: none for records; for words that of `ReplacedWords`. `ask` asks one query whose event is non-private, so
    the ledger refuses it for a release. A plan refuses a finite epsilon, which would name a guarantee that the rows do
    not have.
    """

    plan: Plan
    sets: WordSets  # the public map (`models.word_map`)

    def ask(self, view: View) -> Sequence[Record]:
        """Ask for the rows with their words replaced, not private. A row without a word of the map is empty."""
        return view.ask(ReplacedWords(self.sets, float(self.plan.numbers["token_epsilon"]), _QUERY))

    def made(self, artifact: Sequence[Record]) -> Made:
        """Return the rows that have a word of the map, label by label, in the order of the private rows."""
        labels = dict.fromkeys(row.label for row in artifact if row.text)
        rows = [row for label in labels for row in artifact if row.text and row.label == label]
        return Made(rows, len(artifact), {"empty": len(artifact) - len(rows)})
