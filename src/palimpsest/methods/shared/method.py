"""The declaration of a method: everything that the rest of the project must know about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from dp_accounting.dp_event import DpEvent, NoOpDpEvent

from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.tools import Reads
from palimpsest.models.words import Words
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings


class Shown(Protocol):
    """Numbers of a plan as words."""

    def __call__(self, *keys: str, digits: int = 3) -> str:
        """The first of these numbers that the plan has; a dash where it has none."""


@dataclass(frozen=True)
class PlanColumn:
    """One column: its heading, and its cell for a plan."""

    heading: str
    cell: Callable[[Shown], str]


@dataclass(frozen=True)
class PlanTable:
    """One table: what a row is, and the columns between its name and its cost.

    `way` is a number of the plan that is shown under the name, and says how the method works.
    """

    row: str
    columns: tuple[PlanColumn, ...]
    way: str | None = None


TRAINED = PlanTable(
    "model",
    (
        PlanColumn("noise", lambda shown: shown("noise_multiplier", digits=5)),
        PlanColumn("steps", lambda shown: shown("steps")),
        PlanColumn(
            "batch\n(rate)", lambda shown: f"{shown('expected_batch', digits=6)}\n({shown('sampling_rate', digits=4)})"
        ),
    ),
)
WRITTEN = PlanTable(
    "variant",
    (
        PlanColumn("clip", lambda shown: shown("clip", digits=4)),
        PlanColumn(
            "tokens\n(batches)", lambda shown: f"{shown('tokens')}\n({shown('batches')} of {shown('batch_size')})"
        ),
        PlanColumn("examples\n(read)", lambda shown: f"{shown('expected_examples')}\n({shown('forward_tokens')})"),
    ),
    way="clipping",
)
CHOSEN = PlanTable(
    "variant",
    (
        PlanColumn("noise\n(rounds)", lambda shown: f"{shown('sigma', 'scale', digits=5)}\n({shown('rounds')})"),
        PlanColumn("rows\n(candidates)", lambda shown: f"{shown('rows')}\n({shown('candidates')})"),
        PlanColumn("requests\n(tokens)", lambda shown: f"{shown('requests')}\n({shown('tokens')})"),
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
