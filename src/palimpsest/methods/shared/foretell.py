"""Foretells from public numbers alone whether private rows can say more than the noise on them."""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from palimpsest.records.schema import PublicSchema

Word: TypeAlias = Literal["good", "weak", "lost"]

# The ratio from which the word is good, and that below which it is lost: measured in docs/sizing.md.
_MEANS, _VOTES = (12.0, 5.0), (1.0, 0.1)
_WRITTEN = (70.0, 5.0)  # of class means that choose among the few texts of private prediction
_JUDGE, _MODEL = (120.0, 15.0), (math.inf, 15.0)  # a language model alone was good nowhere
_MEASURED = 100.0  # the largest ratio at which one was measured


@dataclass(frozen=True)
class Foretold:
    """A signal that is expected of a label of average size, over the noise on it.

    Attributes:
        what: the signal and its noise, in words.
        ratio: the one over the other; infinite without noise.
        good: the ratio from which private rows were seen to help.
        lost: the ratio below which noise decides.
    """

    what: str
    ratio: float
    good: float
    lost: float

    @property
    def word(self) -> Word:
        """Good, weak, or lost: noise decides."""
        return self._name(self.ratio)

    def describe(self) -> str:
        """Return a sentence about a label of average size, and about one of which there is a tenth as much.

        >>> foretell_votes(4.0, 2.0).describe()
        'votes of an average candidate, over their noise: 2.0, good; of a label of a tenth of these 0.20, weak'
        """
        few = self.ratio / 10
        said = f"{self.what}: {_round(self.ratio)}, {self.word}; of a label of a tenth of these {_round(few)}, "
        helps = {
            "good": "",
            "weak": ". Fewer labels, more records or more epsilon help",
            "lost": ". Fewer labels, more records or more epsilon help; public_only, at epsilon 0, does as well",
        }
        return said + self._name(few) + helps[self.word]

    def _name(self, ratio: float) -> Word:
        return "good" if ratio >= self.good else "weak" if ratio >= self.lost else "lost"


def foretell_means(schema: PublicSchema, sigma: float) -> Foretold:
    """Foretell what noisy class means say of a label.

    A text's score for each label carries noise of `sigma`, and the largest of so many draws, about sigma sqrt(2 ln L),
    decides where a text goes unless the records of its own label outweigh it.
    """
    labels, units = len(schema.label_names), schema.n_units
    noise = sigma * math.sqrt(2.0 * math.log(max(2, labels)))
    what = f"signal of a label of {units / labels:,.0f} {schema.unit}s, over its noise"
    return Foretold(what, units / labels / noise if noise else math.inf, *_MEANS)


def foretell_written(schema: PublicSchema, sigma: float) -> Foretold:
    """Foretell what noisy class means say where they choose among texts of private prediction, which are few."""
    return replace(foretell_means(schema, sigma), good=_WRITTEN[0], lost=_WRITTEN[1])


def foretell_votes(each: float, sigma: float) -> Foretold:
    """Foretell what noisy votes say of a candidate that gets `each` of them, as an average one does."""
    return Foretold("votes of an average candidate, over their noise", each / sigma if sigma else math.inf, *_VOTES)


def foretell_model(schema: PublicSchema, signal: float) -> tuple[Foretold, ...]:
    """Foretell what a language model's noisy gradients say of a label; nothing beyond the ratios that were measured.

    `signal` is the sum of all steps over its noise, where the gradients of all records are alike.
    """
    told = _foretell_training(schema, signal, "language model", _MODEL)
    return (told,) if told.ratio <= _MEASURED else ()


def foretell_judge(schema: PublicSchema, signal: float) -> Foretold:
    """Foretell what a judge's noisy gradients say of a label; see `foretell_model`."""
    return _foretell_training(schema, signal, "judge", _JUDGE)


def _foretell_training(schema: PublicSchema, signal: float, what: str, words: tuple[float, float]) -> Foretold:
    labels = len(schema.label_names)
    told = f"gradients of a label of {schema.n_units / labels:,.0f} {schema.unit}s, over the noise on the {what}"
    return Foretold(told, signal / labels, *words)


def _round(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"
