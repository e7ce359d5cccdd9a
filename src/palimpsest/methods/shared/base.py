"""Shared by all methods: a plan that costs nothing, a fit that spends, and rows that are free.

A plan also foretells, from public numbers alone, whether private rows can say more than the noise on them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from dp_accounting.dp_event import DpEvent

from palimpsest.plain import Plain, PlainFile
from palimpsest.privacy.events import compose_terms
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.workspace import INTERNAL

Word: TypeAlias = Literal["good", "weak", "lost"]

# The ratio from which the word is good, and that below which it is lost: measured in docs/sizing.md.
_MEANS, _VOTES = (12.0, 5.0), (1.0, 0.1)
_WRITTEN = (70.0, 5.0)  # of class means that choose among the few texts of private prediction
_JUDGE, _MODEL = (120.0, 15.0), (math.inf, 15.0)  # a language model alone was good nowhere
_MEASURED = 100.0  # the largest ratio at which one was measured
Artifact = TypeVar("Artifact")
Model = TypeVar("Model", covariant=True)


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


@dataclass(frozen=True)
class Budget:
    """The privacy budget of one variant.

    Attributes:
        epsilon: target epsilon; infinity marks a reference run that adds no noise.
        delta: the data asset's delta.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Plan:
    """The queries of a fit and their cost, made from public facts only.

    Attributes:
        method: its name.
        budget: the target.
        queries: every private query of the fit, in order.
        numbers: public figures worth printing (noise multiplier, steps, rate, ...).
        feasible: False where the setting cannot work; `notes` then say why and what to do instead.
        foretold: the signals that are expected of private rows.
    """

    method: str
    budget: Budget
    queries: tuple[PlannedQuery, ...]
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    feasible: bool = True
    notes: tuple[str, ...] = ()
    foretold: tuple[Foretold, ...] = ()

    @property
    def lost(self) -> bool:
        """Whether noise is expected to decide over private rows, so that a run needs the owner's word."""
        return bool(self.foretold) and all(one.word == "lost" for one in self.foretold)

    @property
    def told(self) -> tuple[str, ...]:
        """Sentences about this plan for a person to read; nothing is foretold where there is no noise."""
        return (*(one.describe() for one in self.foretold if math.isfinite(one.ratio)), *self.notes)

    @property
    def event(self) -> DpEvent:
        """The composition of all queries, in parallel for those of disjoint parts."""
        return compose_terms((query.event, query.partition) for query in self.queries)

    @property
    def own_delta(self) -> float:
        """The delta that the queries take beside their events; those of disjoint parts are added, too."""
        return sum(query.own_delta for query in self.queries)


@dataclass(frozen=True)
class Made:
    """The synthetic rows of a fit, and the facts about them that may be reported.

    Attributes:
        rows: the rows that are kept.
        drawn: rows that were written or drawn before filters.
        removed: filter -> rows that it removed.
        told: further counts and samples for generation.json.
        rounds: writes the selection of each round to a path, whose suffix it chooses; None where there are no rounds.
        assumptions: ids of the `privacy.planned` that the fit relied on.
    """

    rows: Sequence[Record]
    drawn: int
    removed: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    rounds: Callable[[Path], None] | None = None
    assumptions: tuple[str, ...] = ()


class Fit(Protocol[Artifact]):
    """A method with everything that it works with: its plan, public models and public texts.

    Guarantee: `ask` reaches private rows only through the view's metered queries, so the artifact is as private as the
    composition of the plan's events. `made` reads no private row (post-processing).
    """

    def ask(self, view: View) -> Artifact:
        """Ask what was planned, in order."""

    def made(self, artifact: Artifact) -> Made:
        """The rows that follow from the answers, free."""


class Training(Protocol[Model]):
    """A training with everything that it works with. Its guarantee is that of a `Fit`; rows are drawn later."""

    def ask(self, view: View) -> Model:
        """Ask what was planned, in order, and return the fitted model."""

    def assumptions(self) -> tuple[str, ...]:
        """Return the ids of `privacy.planned` that it relies on; only public records decide."""


class Saved(Protocol):
    """A fitted model."""

    def save(self, folder: Path) -> None:
        """Write it to a folder, all or nothing."""


def coins(*parts: object) -> np.random.Generator:
    """Public randomness: a stream of draws that is a function only of these numbers and texts.

    >>> coins(1, "a", "b").random() == coins(1, "a", "b").random()
    True
    >>> coins(1, "a", "b").random() == coins(1, "ab").random()
    False
    """
    digest = blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


@dataclass(frozen=True)
class ScoredText(Plain):
    """One synthetic text, and how likely the public model finds it."""

    text: str
    label: str | None
    perplexity: float


@dataclass(frozen=True)
class GenerationCounts(PlainFile):
    """Counts of the stage that wrote a variant's rows; None for those that a method does not count.

    Attributes:
        drawn: rows before any filter.
        rows: rows that were kept.
        removed: filter -> rows that it removed.
        tokens: tokens that were written, or paid for.
        private_share: share of the tokens that private rows influenced.
        rounds: finished rounds.
        requests: requests that were sent to an author.
        unusable: reason -> an author's answers that were unusable.
        kept_samples: texts that a readability check let pass.
        unreadable_samples: texts that it dropped.
        strengths: label -> strength by which a model was moved for it, in measured differences.
        chosen: the variant whose rows these are, where it was chosen among several.
    """

    drawn: int
    rows: int
    removed: Mapping[str, int] = field(default_factory=dict)
    tokens: int | None = None
    private_share: float | None = None
    rounds: int | None = None
    requests: int | None = None
    unusable: Mapping[str, int] | None = None
    kept_samples: tuple[ScoredText, ...] | None = None
    unreadable_samples: tuple[ScoredText, ...] | None = None
    strengths: Mapping[str, float] | None = None
    chosen: str | None = None

    def to_json(self, variant: str, zone: str = INTERNAL) -> dict[str, Any]:
        """Return the metric file of a variant, without counts that are None; its zone is that of the rows."""
        return {name: value for name, value in super().to_json(variant, zone).items() if value is not None}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        optional = {one.name: one.default for one in fields(cls) if one.default is None}
        return super().from_json({**optional, "removed": {}, **body})
