"""`custext`: private rows with every word replaced, a baseline that protects words and not records.

It is there to be measured beside the others (Chen et al. 2023). Its rows must never be released.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palimpsest.methods.baselines.custext.plan import QUERY
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.privacy.query import View
from palimpsest.privacy.words import ReplacedWords, WordSets
from palimpsest.records.record import Record


@dataclass(frozen=True)
class CusText:
    """The private rows, word by word drawn anew from a public map.

    Guarantee: none for records; for words that of `ReplacedWords`. `ask` asks one query whose event is non-private, so
    the ledger refuses it for a release, and a plan refuses a finite epsilon, which would name a guarantee that the rows
    do not have.

    Attributes:
        sets: the public map (`models.word_map`).
    """

    plan: Plan
    sets: WordSets

    def ask(self, view: View) -> Sequence[Record]:
        """Ask for the rows with their words replaced, not private. One without a word of the map is empty."""
        return view.ask(ReplacedWords(self.sets, float(self.plan.numbers["token_epsilon"]), QUERY))

    def made(self, artifact: Sequence[Record]) -> Made:
        """The rows that have a word of the map, label by label, in the order of the private rows."""
        labels = dict.fromkeys(row.label for row in artifact if row.text)
        rows = [row for label in labels for row in artifact if row.text and row.label == label]
        return Made(rows, len(artifact), {"empty": len(artifact) - len(rows)})
