"""Foretells from public numbers alone whether private rows can say more than the noise on them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Word: TypeAlias = Literal["good", "weak", "lost"]

_GOOD, _LOST = 30.0, 10.0  # measured: docs/sizing.md, which records and labels noise leaves
_HELP: Mapping[Word, str] = {
    "weak": ". Fewer labels, more records or more epsilon help",
    "lost": ". Fewer labels, more records or more epsilon help; public_only, at epsilon 0, does as well",
}


@dataclass(frozen=True)
class Foretold:
    """The signal that is expected of a label, in words.

    Attributes:
        records: the number of units of a label of average size.
        ratio: records of a label of average size, over the largest noise among the labels' scores.
        word: good, weak, or lost: noise decides.
    """

    records: float
    ratio: float
    word: Word

    def describe(self, unit: str) -> str:
        """Return a sentence about a label of average size, and about one of which there is a tenth as much.

        >>> foretell_means(4, 2000, 1.3).describe("record")
        'signal of a label of 500 records, over its noise: 231, good; of a label of a tenth of these 23, weak'
        """
        few = self.ratio / 10
        said = f"signal of a label of {self.records:,.0f} {unit}s, over its noise: {_round(self.ratio)}, {self.word}"
        return f"{said}; of a label of a tenth of these {_round(few)}, {_word(few)}{_HELP.get(self.word, '')}"


def foretell_means(labels: int, units: float, sigma: float) -> Foretold:
    """Foretell what noisy class means say of a label.

    A text's score for each label carries noise of `sigma`, and the largest of so many draws, about sigma sqrt(2 ln L),
    decides where a text goes unless the records of its own label outweigh it.

    >>> foretell_means(150, 3000, 1.3).word, foretell_means(2, 4000, 1.3).word
    ('lost', 'good')
    """
    noise = sigma * math.sqrt(2.0 * math.log(max(2, labels)))
    ratio = units / labels / noise if noise else math.inf
    return Foretold(units / labels, ratio, _word(ratio))


def _word(ratio: float) -> Word:
    return "good" if ratio >= _GOOD else "weak" if ratio >= _LOST else "lost"


def _round(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
