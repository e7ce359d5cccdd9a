"""The declaration of a method, and the inputs of its fit: what the rest of the project must know about it.

Inputs are public artifacts and models, passed in by the code that knows where they are stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from dp_accounting.dp_event import DpEvent, NoOpDpEvent

from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.models.settings import Words
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings

Encode: TypeAlias = Callable[[Sequence[str]], np.ndarray]


class Reads(StrEnum):
    """A public artifact or model, or one that was charged before, that a method reads. A run is identified by them."""

    TEXTS = "public texts"
    START = "what first populations are chosen from: public texts, or zero-shot ones of an author"
    EMBEDDINGS = "embeddings of the public texts and of the labels' descriptions"
    HELDOUT = "held-out public texts"
    BASE = "the public language model"
    READER = "the public language model that reads prompts: the base, or a taught one"
    DECODER = "a public decoder of embeddings"
    ENCODER = "the public sentence encoder"
    AUTHOR = "who writes candidates"
    SOURCE = "the rows of another variant"
    SOURCES = "the rows of several other variants"
    FITTED = "a fitted language model"


class ReadsTexts(Protocol):
    """A model that makes vectors of texts."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode_batch(self, texts: list[str]) -> np.ndarray:
        """Vectors of texts that are read side by side, (n, dimension)."""


class Encoders(Protocol):
    """One public sentence encoder with two caches, so that entries of private texts and of other texts stay apart."""

    @property
    def rows(self) -> Encode:
        """For private texts."""

    @property
    def others(self) -> Encode:
        """For public and synthetic texts."""

    @property
    def fresh(self) -> Encode:
        """For public texts, each by itself, without a cache: the text is encoded anew on this machine."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the encoder's weights and configuration."""


class Files(Protocol):
    """Public artifacts, each under its name in `Reads`: small ones as values, others as folders.

    Asking for an artifact that the method does not declare in `reads` is an error.
    """

    @property
    def schema(self) -> PublicSchema:
        """The public facts about the data set."""

    @property
    def seed(self) -> int:
        """Seeds draws from public texts and noisy answers; never noise, batches or keys."""

    @property
    def kept(self) -> Path | None:
        """The folder where a stopped run leaves its state to continue from; None keeps nothing."""

    @property
    def answers(self) -> Path:
        """The file with the answers of language models, by the hash of the question."""

    def key(self) -> bytes:
        """32 secret bytes that spread records, or persons, over batches; the same for every run of the variant."""

    def texts(self) -> Sequence[str]:
        """The public texts."""

    def start(self) -> Sequence[Record]:
        """The texts that first populations are chosen from; those without a label may serve any label."""

    def embeddings(self) -> Mapping[str, np.ndarray]:
        """Texts (n, d) and descriptions (labels, d); empty where there are no labels."""

    def heldout(self) -> Sequence[str]:
        """The held-out public texts."""

    def base(self) -> Path:
        """The folder of the public language model."""

    def untouched(self) -> Path:
        """`base` as it was before it learned prompts, if a named model did: it judges and filters texts."""

    def reader(self) -> Path:
        """The folder of the public language model that reads prompts."""

    def decoder(self) -> Path:
        """The folder of the public decoder."""

    def encoder(self) -> Path:
        """The folder of the public sentence encoder."""

    def author(self) -> Any:
        """The settings of an author."""

    def author_model(self) -> Path:
        """The folder of a local author's model."""

    def source(self) -> Sequence[Record]:
        """The rows of another variant."""

    def sources(self) -> Mapping[str, Sequence[Record]]:
        """The rows of several other variants, by their names."""

    def fitted(self) -> Path:
        """The folder of a fitted language model."""


class Tools(Files, Protocol):
    """The inputs of a method that is not a training."""

    def encoders(self, batch: int) -> Encoders:
        """Return `Reads.ENCODER` with its caches; new private texts are read `batch` at once."""

    def inner(self, reader: ReadsTexts, told: str, batch: int) -> Encoders:
        """Return encoders for a reader of `Reads.BASE`; `told` names what its vectors depend on besides it."""


class Shown(Protocol):
    """Numbers of a plan as words."""

    def __call__(self, *keys: str, digits: int = 3) -> str:
        """The first of these numbers that the plan has; a dash where it has none."""


@dataclass(frozen=True)
class _PlanColumn:
    """One column: its heading, and its cell for a plan."""

    heading: str
    cell: Callable[[Shown], str]


@dataclass(frozen=True)
class PlanTable:
    """One table: what a row is, and the columns between its name and its cost.

    `way` is a number of the plan that is shown under the name, and says how the method works.
    """

    row: str
    columns: tuple[_PlanColumn, ...]
    way: str | None = None


TRAINED = PlanTable(
    "model",
    (
        _PlanColumn("noise", lambda shown: shown("noise_multiplier", digits=5)),
        _PlanColumn("steps", lambda shown: shown("steps")),
        _PlanColumn(
            "batch\n(rate)", lambda shown: f"{shown('expected_batch', digits=6)}\n({shown('sampling_rate', digits=4)})"
        ),
    ),
)
WRITTEN = PlanTable(
    "variant",
    (
        _PlanColumn("clip", lambda shown: shown("clip", digits=4)),
        _PlanColumn(
            "tokens\n(batches)", lambda shown: f"{shown('tokens')}\n({shown('batches')} of {shown('batch_size')})"
        ),
        _PlanColumn("examples\n(read)", lambda shown: f"{shown('expected_examples')}\n({shown('forward_tokens')})"),
    ),
    way="clipping",
)
CHOSEN = PlanTable(
    "variant",
    (
        _PlanColumn("noise\n(rounds)", lambda shown: f"{shown('sigma', 'scale', digits=5)}\n({shown('rounds')})"),
        _PlanColumn("rows\n(candidates)", lambda shown: f"{shown('rows')}\n({shown('candidates')})"),
        _PlanColumn("requests\n(tokens)", lambda shown: f"{shown('requests')}\n({shown('tokens')})"),
    ),
)


class Family(StrEnum):
    """The way in which a method makes rows."""

    TRAINS = "a model is fitted to private rows, and rows are drawn from it, free"
    WRITES = "a public model writes rows from private contexts"
    CHOOSES = "private rows choose among public or synthetic texts"
    EDITS = "private rows are changed"


class Resumes(StrEnum):
    """The way in which a stopped run continues under its charge."""

    NOT = "it does not: an answer that was stored is replayed, and whatever else began is lost"
    CHECKPOINTS = "from the last checkpoint"
    WAVES = "with what the charge has left, wherever the run goes on"
    ROUNDS = "after the last round that was stored, or while any is left"


@dataclass(frozen=True)
class Basis:
    """Public facts about the basis of a variant.

    Attributes:
        event: everything that it was, or will be, charged.
        own_delta: the delta that this takes beside its event.
        author: settings of the author that writes for it.
    """

    event: DpEvent = field(default_factory=NoOpDpEvent)
    own_delta: float = 0.0
    author: Any = None


@dataclass(frozen=True)
class Method:
    """A method.

    Attributes:
        name: in params.yaml and on the pages.
        stage: the name of the stage that runs it, in dvc.yaml.
        family: the way in which it makes rows.
        title: its rows, described in one sentence.
        does: its stage's work, in one sentence for dvc.yaml; where methods share a stage, the first one's is used.
        tasks: tasks of data sets that it can do.
        settings: its settings.
        plan: plans a fit's queries and cost from its settings and public facts only; no row is read.
        build: settings, plan, `Tools` -> a complete `Fit`; of a training, settings, plan, `Files` -> a `Training`.
        reads: its inputs besides private rows; its stage depends on them.
        columns: those of `palimpsest plan`.
        module: module of the declaration; its imports are the code that identifies a run.
        source: the source of a variant where params.yaml has no `from`: "own" a model of its name, "base" the public
            language model, "named" nothing, so that `from` is required; "several": `from` lists at least two; "none":
            it takes no `from`.
        resumes: how a stopped run goes on.
        spared: settings of an author -> the inputs among `reads` that are not read where that author writes for it.
        seeded: whether the seed governs any of its draws, none of which touches a private row.
        rounds: ending of the file with the selection of each round; empty where it keeps none.
        problem: settings, purpose, epsilon -> a conflict between them; None where they fit together.
        baseline: whether it serves only for comparison, and not as the first variant of a data set.
        worded: words of prompts, whether there are labels -> its prompt in words, where it reads the unchanged public
            language model.
        untwinned: why no end-to-end audit of it exists; None where there is one.
    """

    name: str
    stage: str
    family: Family
    title: str
    tasks: tuple[str, ...]
    settings: type[Settings]
    plan: Callable[[Any, PublicSchema, Budget, Basis], Plan]
    build: Callable[[Any, Plan, Any], Any]
    reads: frozenset[Reads]
    columns: PlanTable
    module: str
    source: Literal["own", "base", "named", "several", "none"] = "none"
    resumes: Resumes = Resumes.NOT
    does: str = ""
    spared: Callable[[Any], frozenset[Reads]] = lambda _author: frozenset()
    seeded: bool = False
    rounds: str = ""
    problem: Callable[[Any, str, float], str | None] = lambda _settings, _purpose, _epsilon: None
    baseline: bool = False
    worded: Callable[[Words, bool], Mapping[str, str]] = lambda _words, _labelled: {}
    untwinned: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a first population is read that no key names."""
        if Reads.START in self.reads and (self.source == "none" or "zero_shot" not in self.settings.model_fields):
            raise ValueError(
                f"method {self.name} reads a first population: it needs a source and a setting `zero_shot`"
            )

    def reads_with(self, author: Any) -> frozenset[Reads]:
        """Return its inputs where an author of these settings writes for it."""
        return self.reads - self.spared(author)

    @property
    def run(self) -> str:
        """The key of `run` that names its variants: where they are made."""
        return self.name if self.family is Family.TRAINS else self.stage
