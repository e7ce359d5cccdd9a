"""`steer`: noisy means of hidden states move a public language model, which writes.

The idea is that of steering vectors: a difference of mean activations, added while a model writes, makes its texts more
like the one side (Turner et al. 2023). Here the one side is private rows, read through `ClassMeans`, and the other is
the texts that the unchanged model writes for the label.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Self

import numpy as np

from palimpsest.devices import HALF, dtype_of, exact_device
from palimpsest.methods.shared.base import Made, Plan, coins
from palimpsest.methods.shared.filters import apply_filters, build_filters
from palimpsest.methods.shared.means import Candidates, ClassSums, choose, class_sums
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.shares import label_rows, planned_histogram, whole_rho
from palimpsest.methods.steer.declaration import SteerSettings
from palimpsest.models.activations import Activations, shift_states
from palimpsest.models.attention import blocks
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import heads_of, specials
from palimpsest.models.writing import Start, Writer, decode_texts
from palimpsest.privacy.query import View
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_FLAT = 1e-6  # of the largest deviation: a coordinate that hardly varies is not blown up
_LEAST = 1e-30  # where no coordinate varies at all
_ROOM = 1.5  # times the middle length of the model's own deviations: those of private rows are cut there


class Voice:
    """A causal language model that is never trained.

    Guarantee: what it writes is a function of public settings, labels and descriptions, the seed, and the shift that it
    is given: post-processing of that shift.

    Attributes:
        reader: texts to hidden states after the block that is moved, each text after only BOS, whatever its label.
        told: everything that these states depend on besides the model.
    """

    def __init__(self, settings: SteerSettings, folder: Path, labels: Mapping[str, str], seed: int) -> None:
        """Load the model.

        Raises:
            ModelError: the folder holds no causal language model, or a label leaves no room for a text.
        """
        self._model, self._tokenizer = load_lm(folder, dtype_of(settings.precision))
        self._model.to(exact_device())  # type: ignore[arg-type]
        self._writer = Writer(
            self._model, self._tokenizer, settings.temperature, settings.top_p, line=settings.ends == "line"
        )
        self._settings, self._seed = settings, seed
        self._heads = heads_of(self._tokenizer, settings.prompt, labels)
        self._block = max(0, round(settings.depth * len(blocks(self._model))) - 1)
        head = (specials(self._tokenizer).bos,)
        self.reader = Activations(self._model, self._tokenizer, self._block, head, self._read)
        half = f", {HALF}" if settings.precision == HALF else ""
        self.told = f"block {self._block}, {self._read} tokens{half}"

    def texts(self, label: str, numbers: Sequence[int], shift: np.ndarray | None = None) -> list[str]:
        """Write the texts of these numbers after a label's prompt, side by side; some may be empty.

        Args:
            shift: the shift of states, shape (d,); None leaves them unchanged.
        """
        starts = [self._start(label, shift, number) for number in numbers]
        with nullcontext() if shift is None else shift_states(self._model, self._block, shift):
            return decode_texts(self._tokenizer, self._writer.go_on(starts))

    def _start(self, label: str, shift: np.ndarray | None, number: int) -> Start:
        """The beginning of a text; its random draws depend on the shift."""
        moved_by = "" if shift is None else blake2b(np.ascontiguousarray(shift).tobytes(), digest_size=8).hexdigest()
        stream = coins(self._seed, "steer", label, moved_by, number)
        return self._writer.start_text(self._heads[label], self._settings.max_tokens, stream)

    @property
    def _read(self) -> int:
        """The number of tokens of a text that are read."""
        return min(self._settings.max_tokens, self._writer.context - 1)


@dataclass(frozen=True, eq=False)
class Space:
    """Hidden states as deviations from a public point, each coordinate divided by its spread, the whole by `length`.

    Attributes:
        centre: the public point, shape (d,).
        scale: the spread of each coordinate, shape (d,).
        length: the divisor of deviations: a deviation of length 1 or more counts as 1.
    """

    centre: np.ndarray
    scale: np.ndarray
    length: float

    @classmethod
    def of(cls, states: np.ndarray) -> Self:
        """The space around states (n, d) of the model's own texts."""
        spread, centre = states.std(axis=0), states.mean(axis=0)
        scale = np.maximum(spread, max(float(spread.max()) * _FLAT, _LEAST))
        lengths = np.linalg.norm((states - centre) / scale, axis=1)
        return cls(centre, scale, max(_ROOM * float(np.median(lengths)), 1.0))

    def centre_at(self, mean: np.ndarray) -> Self:
        """Return the space around a point that is given as a deviation, (d,)."""
        return replace(self, centre=self.centre + mean * self.length * self.scale)

    def deviations(self, states: np.ndarray) -> np.ndarray:
        """Return the deviations of states (n, d), not clipped: float64."""
        return (np.asarray(states, dtype=np.float64) - self.centre) / (self.scale * self.length)

    def shift(self, deviation: np.ndarray) -> np.ndarray:
        """Return the shift that moves a state by a deviation, (d,)."""
        return deviation * self.length * self.scale


def lift(deviations: np.ndarray) -> np.ndarray:
    """Clip deviations (n, d) to length 1, and add a coordinate that makes the length of each exactly 1: (n, d + 1).

    A query that normalises every vector to length 1 then leaves these unchanged, so that short ones stay short in the
    mean. A deviation that is not finite becomes all zeros, and adds nothing.
    """
    lengths = np.linalg.norm(deviations, axis=1, keepdims=True)
    usable = np.isfinite(lengths)
    cut = np.where(usable, deviations, 0.0) / np.maximum(np.where(usable, lengths, 1.0), 1.0)
    rest = np.sqrt(np.maximum(1.0 - np.square(cut).sum(axis=1, keepdims=True), 0.0))
    return np.concatenate([cut, np.where(usable, rest, 0.0)], axis=1)


@dataclass(frozen=True, eq=False)
class Moved:
    """The answers.

    Attributes:
        space: public, around the texts that the unchanged model writes.
        own: mean deviation of these texts for each label, shape (labels, d).
        mean: noisy mean deviation of all private rows, (d,).
        sums: noisy sums around this mean for each label.
        counts: the rows that each label gets.
    """

    space: Space
    own: np.ndarray
    mean: np.ndarray
    sums: ClassSums
    counts: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Steer:
    """Texts of an untouched language model that is moved towards the private rows of each label.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, and twice for the
    class means of hidden states, each for adding or removing one unit, a record or a person (`LabelHistogram`,
    `ClassMeans`). Each private text is read by itself, and what it adds has length 1 at most, whatever its states are.
    The second look is around the noisy answer to the first. The composition meets the budget under its primary
    accountant. What the model writes, at which strength, and which texts are kept are post-processing of the answers.
    With an infinite epsilon nothing is noised: a reference that must never be released.

    Attributes:
        voice: the public model.
        states: its reader of texts with two memories.
    """

    settings: SteerSettings
    schema: PublicSchema
    plan: Plan
    voice: Voice
    states: Encoders

    def ask(self, view: View) -> Moved:
        """Let the unchanged model write, then ask for the mean of all private rows, and for label sums around it."""
        settings, schema = self.settings, self.schema
        written = self._write_texts([(label, None, settings.pilot) for label in schema.label_names])
        read = [self.states.others(texts) for texts in written]
        space = Space.of(np.concatenate(read).astype(np.float64))
        own = np.stack([space.deviations(states).mean(axis=0) for states in read])
        counts = label_rows(view, settings, schema, planned_histogram(settings, schema, whole_rho(self.plan.budget)))
        mean = self._sums(view, space, "first_sigma").sums.sum(axis=0) / schema.n_units
        return Moved(space, own, mean, self._sums(view, space.centre_at(mean), "sigma"), counts)

    def _sums(self, view: View, space: Space, noise: str) -> ClassSums:
        def encode(texts: Sequence[str]) -> np.ndarray:
            return lift(space.deviations(self.states.rows(texts)))

        found = class_sums(view, self.schema, encode, self.states.dimension + 1, float(self.plan.numbers[noise]))
        return replace(found, sums=found.sums[:, :-1])

    def made(self, artifact: Moved) -> Made:
        """Write texts for each label by the moved model, and keep those that are most like the label."""
        settings, labels = self.settings, self.schema.label_names
        strengths = dict(zip(labels, self._strengths(artifact), strict=True))
        asked = [
            (label, self._shift(artifact, place, strengths[label]), settings.pool * artifact.counts[label])
            for place, label in enumerate(labels)
        ]
        pairs = zip(labels, self._write_texts(asked), strict=True)
        written = [Record(text, label) for label, texts in pairs for text in texts if text]
        removing = build_filters(settings.filters)
        kept = apply_filters(removing, dict.fromkeys(written))
        rows = kept if settings.pool == 1 else self._choose_likeliest(artifact, [row.text for row in kept])
        return Made(rows, len(written), removing.removed, {"strengths": strengths})

    def _choose_likeliest(self, artifact: Moved, texts: Sequence[str]) -> list[Record]:
        """Return the texts most like a label's noisy mean and unlike the others', whatever they were written for."""
        around = artifact.space.centre_at(artifact.mean)
        candidates = Candidates(texts, around.deviations(self.states.others(texts)))
        return choose(candidates, artifact.sums, artifact.counts, self.settings.domain)

    def _strengths(self, artifact: Moved) -> list[float]:
        """Return the strength for each label whose texts come nearest to its noisy mean; 0 is the unchanged model."""
        settings, labels = self.settings, self.schema.label_names
        if len(settings.strengths) == 1:
            return list(settings.strengths) * len(labels)
        tried = [(place, strength) for place in range(len(labels)) for strength in settings.strengths]
        asked = [(labels[place], self._shift(artifact, place, strength), settings.pilot) for place, strength in tried]
        means = {(place, 0.0): artifact.own[place] for place in range(len(labels))}
        for key, texts in zip(tried, self._write_texts(asked), strict=True):
            means[key] = artifact.space.deviations(self.states.others(texts)).mean(axis=0)
        targets = [self._target(artifact, place) for place in range(len(labels))]
        far = {key: float(np.linalg.norm(mean - targets[key[0]])) for key, mean in means.items()}
        return [
            min((0.0, *settings.strengths), key=lambda strength: (far[place, strength], strength))
            for place in range(len(labels))
        ]

    def _write_texts(self, asked: Sequence[tuple[str, np.ndarray | None, int]]) -> list[list[str]]:
        """Write the texts of each label, shift and count; some are empty."""
        size = self.settings.side_by_side
        parts = [
            (place, range(count)[first : first + size])
            for place, (_, _, count) in enumerate(asked)
            for first in range(0, count, size)
        ]
        written: list[list[str]] = [[] for _ in asked]
        for place, numbers in track(parts, name="write", total=len(parts), private=True):
            label, shift, _ = asked[place]
            written[place] += self.voice.texts(label, numbers, shift)
        return written

    def _shift(self, artifact: Moved, place: int, strength: float) -> np.ndarray | None:
        """Return the shift of a label's states at a strength, (d,); None at 0."""
        difference = self._target(artifact, place) - artifact.own[place]
        return artifact.space.shift(strength * difference) if strength else None

    def _target(self, artifact: Moved, place: int) -> np.ndarray:
        """Estimate a label's mean deviation (d,): the mean of all rows plus the label's own noisy part, shrunk."""
        share = artifact.counts[self.schema.label_names[place]] / sum(artifact.counts.values())
        units = max(1.0, share * self.schema.n_units)
        beside = artifact.sums.sums[place] / units
        return artifact.mean + estimate_kept(beside, float(self.plan.numbers["sigma"]) / units) * beside


def estimate_kept(noisy: np.ndarray, std: float) -> float:
    """Estimate the share of a noisy vector that is not noise, where each coordinate has noise of this deviation.

    The positive part of the estimator of James and Stein (1961), which needs no look at the rows.
    """
    squared = float(noisy @ noisy)
    return max(0.0, 1.0 - len(noisy) * std**2 / squared) if squared else 0.0
