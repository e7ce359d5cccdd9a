"""`phrases`: texts of an untouched language model about phrases that many private rows have.

This is the idea of DP keyphrases: noisy counts and a threshold give a vocabulary of private phrases, which a public
model gets in its prompt. The model sees no row.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palimpsest.devices import dtype_of, exact_device
from palimpsest.errors import ParamsError
from palimpsest.methods.phrases.declaration import UNLABELLED, PhrasesSettings, build_queries
from palimpsest.methods.shared.base import Made, Plan, coins
from palimpsest.methods.shared.filters import apply_filters, build_filters
from palimpsest.methods.shared.postprocess import Filter
from palimpsest.methods.shared.shares import divide_total, label_shares
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import heads_of, require_slots
from palimpsest.models.writing import Start, Writer, decode_texts
from palimpsest.privacy.query import View
from palimpsest.progress import track
from palimpsest.records.phrases import PublicWords
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_SLOT = "{phrases}"
_DRAWS = 8  # times that texts are asked for, while the filters leave a label short


class Voice:
    """A causal language model that is never trained.

    Guarantee: what it writes is a function of public settings, labels and descriptions, the seed, and the phrases that
    it is given: post-processing of these.

    Attributes:
        seed: seeds its random draws.
    """

    def __init__(self, settings: PhrasesSettings, folder: Path, labels: Mapping[str, str], seed: int) -> None:
        """Load the model, and try the prompts without a phrase.

        Raises:
            ModelError: the folder holds no causal language model, or a prompt leaves no room for a text.
            ParamsError: a prompt names an unknown slot.
        """
        model, self._tokenizer = load_lm(folder, dtype_of(settings.precision))
        model.to(exact_device())  # type: ignore[arg-type]
        self._prompt, self._most, self.seed = settings.prompt, settings.max_tokens, seed
        self._writer = Writer(
            model, self._tokenizer, settings.temperature, settings.top_p, line=settings.prompt.ends == "line"
        )
        self._labels = dict(labels) or {UNLABELLED: ""}
        for name, template in (("about", self._prompt.about.replace(_SLOT, "")), ("plain", self._prompt.plain)):
            require_slots(name, template, 0)
            for head in heads_of(self._tokenizer, template, self._labels).values():
                self._writer.room(head, self._most)

    def texts(self, asked: Sequence[tuple[str, int, Sequence[str]]]) -> list[str]:
        """A text for each label, number and phrases, written side by side; some may be empty.

        Texts of one label with different numbers have independent random draws.
        """
        return decode_texts(self._tokenizer, self._writer.go_on([self._start(*one) for one in asked]))

    def _start(self, label: str, number: int, phrases: Sequence[str]) -> Start:
        template = self._prompt.about.replace(_SLOT, ", ".join(phrases)) if phrases else self._prompt.plain
        head = heads_of(self._tokenizer, template, {label: self._labels[label]})[label]
        return self._writer.start_text(head, self._most, coins(self.seed, "text", label, number))


@dataclass(frozen=True, eq=False)
class Told:
    """The answers: the rows that each label gets, and label -> phrase -> the phrase's weight for the label."""

    counts: Mapping[str, int]
    weights: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Phrases:
    """Texts that a public language model writes about phrases of private rows.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, and for the phrases
    of enough units, each once for adding or removing one unit, a record or a person (`LabelHistogram`, `KeyPhrases`).
    Their composition meets the budget under its primary accountant, with the own delta of the phrases beside it. `made`
    reads the answers, a public model and public settings (post-processing). A phrase that came out may be written word
    for word. With an infinite epsilon nothing is noised: a reference that must never be released.

    Attributes:
        words: statistics of words in public texts.
        voice: the public model.
        measure: makes the perplexity filter.

    Raises:
        ParamsError: the plan is not feasible.
    """

    settings: PhrasesSettings
    schema: PublicSchema
    plan: Plan
    words: PublicWords
    voice: Voice
    measure: Callable[[], Filter]

    def __post_init__(self) -> None:
        if not self.plan.feasible:
            raise ParamsError("The plan of method phrases cannot work.", " ".join(self.plan.notes))

    def ask(self, view: View) -> Told:
        """Ask for the shares of the labels, where they are not public, and for the phrases of each."""
        histogram, query = build_queries(self.settings, self.schema, self.plan.budget, self.words)
        shares = label_shares(view, self.settings, self.schema, histogram, UNLABELLED)
        return Told(divide_total(self.settings.rows, shares), weigh_phrases(view.ask(query), shares))

    def made(self, artifact: Told) -> Made:
        """Write texts for each label until enough pass the filters; fewer where the filters keep removing more."""
        removing, counts = build_filters(self.settings.filters, self.measure), artifact.counts
        kept: dict[str, list[Record]] = {label: [] for label in counts}
        drawn = dict.fromkeys(counts, 0)
        for _ in range(_DRAWS):
            wanted = [
                (label, drawn[label] + number) for label in counts for number in range(counts[label] - len(kept[label]))
            ]
            drawn = {label: drawn[label] + counts[label] - len(kept[label]) for label in counts}
            for row in apply_filters(removing, self._write_texts(wanted, artifact.weights)):
                kept[row.label or UNLABELLED].append(row)
        return Made([row for own in kept.values() for row in own], sum(drawn.values()), removing.removed)

    def _write_texts(
        self, wanted: Sequence[tuple[str, int]], weights: Mapping[str, Mapping[str, float]]
    ) -> Iterable[Record]:
        """Write the texts of these labels and numbers in batches, and yield those that are not empty."""
        size = self.settings.side_by_side
        parts = [wanted[first : first + size] for first in range(0, len(wanted), size)]
        for part in track(parts, name="write", total=len(parts), private=True):
            texts = self.voice.texts([(*one, self._draw_shown(*one, weights)) for one in part])
            yield from (Record(text, label or None) for (label, _), text in zip(part, texts, strict=True) if text)

    def _draw_shown(self, label: str, number: int, weights: Mapping[str, Mapping[str, float]]) -> list[str]:
        rng = coins(self.plan.method, self.voice.seed, label, number)
        return draw_phrases(weights[label], self.settings.shown, rng)


def weigh_phrases(found: Iterable[tuple[int, str, int]], shares: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return label -> phrase -> units with the phrase beyond the label's share of all such units; only positive ones.

    Args:
        found: place of the label, phrase, noisy count of units; a count that did not come out is taken as 0.
        shares: share of each label, in the order of the places. A single label keeps its counts.
    """
    found, labels = list(found), list(shares)
    everywhere = Counter[str]()
    for _, phrase, count in found:
        everywhere[phrase] += count
    weights: dict[str, dict[str, float]] = {label: {} for label in labels}
    for place, phrase, count in found:
        others = shares[labels[place]] * everywhere[phrase] if len(labels) > 1 else 0.0
        if count > others:
            weights[labels[place]][phrase] = count - others
    return weights


def draw_phrases(weights: Mapping[str, float], most: int, rng: np.random.Generator) -> list[str]:
    """At most so many phrases, one after another in proportion to their weights, no two of them with a word in common.

    Exponential clocks of these rates ring in that order (Efraimidis and Spirakis 2006).
    """
    names = list(weights)
    clocks = rng.exponential(size=len(names)) / np.array(list(weights.values()), dtype=np.float64)
    chosen, known = list[str](), set[str]()
    for place in np.argsort(clocks, kind="stable").tolist():
        words = set(names[place].split())
        if len(chosen) < most and known.isdisjoint(words):
            chosen.append(names[place])
            known |= words
    return chosen
