"""The schema of params.yaml: every knob of the project, described once, checked before any stage starts."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import Field, ValidationInfo, create_model, field_validator, model_validator

from palimpsest.audit.incontext_settings import InContext
from palimpsest.methods.dp_lm.settings import VARIANTS, DiscriminatorTrain, DpLmGenerate, DpLmTrain, Kind
from palimpsest.methods.evolve.authors import Author
from palimpsest.methods.registry import CHARGED, METHODS, method, stages_that_spend
from palimpsest.methods.shared.method import Method
from palimpsest.models.decoder.settings import DecoderSettings
from palimpsest.models.settings import EmbeddedLm, PromptWarmUp, Similar
from palimpsest.params.release import ReleaseSettings
from palimpsest.records.conformity import schema_problem
from palimpsest.records.schema import CUSTOMER, PublicSchema, default_delta
from palimpsest.records.structured import WHOLE_ROW
from palimpsest.settings import Settings

RESERVED = ("real", "public_only", "base", "taught", "decoders", "checkpoints", "models")
MEANINGLESS_EPSILON = 10.0
_NAME = r"^[a-z][a-z0-9_]*$"


class UnitSettings(Settings):
    """Who one person is: with a column, the person is the unit of privacy.

    Rows that name nobody are dealt with by themselves, then each person is held to the cap, then all rows of a person
    are placed together.
    """

    column: str | None = Field(
        default=None,
        min_length=1,
        description="Column whose exact value is a person, who then is the unit of privacy; null where it is one row. "
        "It never changes for a data set.",
    )
    max_rows: int = Field(
        default=1,
        ge=1,
        description="Public cap on rows per person, applied after rows that name nobody are left out and before the "
        "split; more are left out, chosen by a keyed hash.",
    )
    persons: int | None = Field(
        default=None,
        ge=10,
        description="Public, approximate number of persons, at most n_public; delta, rates and sizes follow from it. "
        "null where there is no column.",
    )
    missing: Literal["drop", "refuse"] = Field(
        default="drop",
        description="A row whose column is null, empty or blank names nobody. drop: each such row is left out by "
        "itself, before the cap. refuse: it is an error that names file and row. Such rows never count as one person.",
    )

    @model_validator(mode="after")
    def _counted(self) -> "UnitSettings":
        if (self.column is None) != (self.persons is None):
            raise ValueError("column and persons go together: name both, or give null for both")
        if self.column is None and self.max_rows > 1:
            raise ValueError("max_rows is above 1 and column is null: without a column nothing is capped")
        return self


class Dataset(Settings):
    """The private data set and the public files beside it."""

    asset: str = Field(pattern=_NAME, description="The data asset's name in the ledger.")
    task: Literal["classify", "span", "text", "json"] = Field(
        description="classify: one label of a public list a record. span: the label is free text and part of the "
        "record. text: no label. json: each record is a JSON object."
    )
    private: str = Field(min_length=1, description="The private file: CSV, TSV, JSONL or Parquet, plain or gzipped.")
    test: str | None = Field(
        default=None, description="Private test file; null cuts a test part from the private file."
    )
    test_share: float = Field(
        default=0.1, ge=0, lt=1, description="Probability of the test part where no test file is given."
    )
    public: str = Field(
        min_length=1,
        description="A public file with text of the same kind, in the same text column. For task json that may hold "
        "records or plain text; where the column is *, a line is a record, or has its plain text under `text`.",
    )
    public_labels: bool = Field(
        default=False, description="Whether the public file has the label column, with the same labels."
    )
    public_test: str | None = Field(default=None, description="A labelled test file declared public, or null.")
    text: str = Field(
        min_length=1,
        description='Name of the text column; for task json "*" where each line of a JSONL file is a record.',
    )
    label: str | None = Field(default=None, description="Name of the label column; null for tasks text and json.")
    labels: Mapping[str, str] = Field(
        default={},
        description="The public list of labels, each with a public description; {} for all tasks but classify.",
    )
    json_schema: Mapping[str, Any] | None = Field(
        default=None,
        description="The public JSON schema (draft 2020-12) of a record, an object with `properties`: its keys and "
        "their order; null for all tasks but json.",
    )
    n_public: int = Field(ge=10, description="Public, approximate number of private records.")
    max_length: int = Field(default=1000, ge=1, description="Longest text kept, in characters; longer ones are cut.")
    unit: UnitSettings = UnitSettings()

    @model_validator(mode="after")
    def _fits_task(self) -> "Dataset":
        if self.task == "classify" and (self.label is None or len(self.labels) < 2):
            raise ValueError("task classify needs `label` and at least two `labels`")
        if self.task == "span" and (self.label is None or self.labels):
            raise ValueError("task span needs `label`, and has no `labels`: a label is free text")
        if self.text == self.label:
            raise ValueError(f"text and label name the same column, {self.text!r}")
        if (self.unit.persons or 0) > self.n_public:
            raise ValueError(f"unit.persons is {self.unit.persons}, more than n_public: each person has a record")
        if self.task in ("text", "json") and (self.label is not None or self.labels):
            raise ValueError(f"task {self.task} has no `label` and no `labels`")
        if self.task != "json" and self.text == WHOLE_ROW:
            raise ValueError(f"text is {WHOLE_ROW!r}; only for task json is a row a record")
        return self

    @model_validator(mode="after")
    def _schema_fits_task(self) -> "Dataset":
        if (self.task == "json") != (self.json_schema is not None):
            raise ValueError(f"json_schema is for task json, which needs one; the task is {self.task}")
        problem = None if self.json_schema is None else schema_problem(self.json_schema)
        if problem:
            raise ValueError(f"json_schema {problem}")
        return self


class InventedWorld(Settings):
    """The invented world of the embedded data set. Null for data of your own."""

    seed: int = Field(description="The same seed makes the same world.")
    private_rows: int = Field(ge=100, description="Labelled private tickets.")
    test_rows: int = Field(ge=100, description="Labelled private test tickets.")
    public_rows: int = Field(ge=100, description="Public tickets, without labels.")
    public_test_rows: int = Field(ge=100, description="Labelled test tickets declared public.")
    authors: int | None = Field(
        default=None,
        ge=10,
        description=f"Customers who wrote the private tickets, named in the column {CUSTOMER}; null: each ticket is "
        "somebody else's. docs/world.md has what else to change.",
    )


class BudgetSettings(Settings):
    """The cap on what the data asset may ever give away."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Cap on the total epsilon over all releases.")
    delta: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="The asset's one delta, for every release and the total, at most 1 / n; null: 1 / (n ln n), with n "
        "the declared number of persons, or of records where there is no unit column.",
    )


class Privacy(Settings):
    """The budget and where it is metered."""

    budget: BudgetSettings
    ledger: str | None = Field(
        default=None,
        description="Path or database URL of the ledger; null: the user's data folder. PALIMPSEST_LEDGER overrides it.",
    )


class Models(Settings):
    """Where weights come from."""

    lm: str = Field(
        default="embedded",
        min_length=1,
        description="Causal LM: embedded, a local folder, or a hub name (name@revision).",
    )
    encoder: str = Field(
        default="embedded", min_length=1, description="Sentence encoder: embedded, a local folder, or a hub name."
    )
    classifier: str | None = Field(
        default=None,
        description="Encoder to fine-tune as a further evaluator: a local folder or a hub name; null: none.",
    )
    embedded_lm: EmbeddedLm
    prompts: PromptWarmUp = PromptWarmUp()


class Fitted(Settings):
    """What every model that is fitted to private rows states."""

    purpose: Literal["release", "reference"] = Field(description="reference: stays in the private zone for ever.")
    epsilon: float = Field(gt=0, description="Target epsilon of the model and all it is built on; .inf adds no noise.")

    @model_validator(mode="after")
    def _infinity_is_reference(self) -> "Fitted":
        if math.isinf(self.epsilon) and self.purpose != "reference":
            raise ValueError("epsilon .inf is not private: mark it `purpose: reference`")
        return self


class LanguageModel(Fitted):
    """A language model of `dp_lm`: one charge, whatever is drawn from it."""

    train: DpLmTrain


class DiscriminatorSettings(Fitted):
    """A discriminator that is trained behind a fitted language model; its epsilon counts both."""

    train: DiscriminatorTrain


class DpLmVariant(Settings):
    """One row of the results: a way of drawing from a fitted model, free."""

    method: Literal["dp_lm"] = Field(description="How the rows are made.")
    variant: Literal["plain", "filter", "pplm", "multitask", "fudge", "fudge_state"] = Field(
        description="The row of the paper's table that this is. plain: from the prompt alone. filter, pplm: with a "
        "discriminator of its own. multitask (PPLM), fudge: with the one that was trained with the language model. "
        "fudge_state: fudge that judges candidates from the state before them."
    )
    generate: DpLmGenerate

    @model_validator(mode="after")
    def _a_judge_where_one_is_needed(self) -> "DpLmVariant":
        judged = self.generate.best_of > 1 or "label" in self.generate.filters.chain
        if judged and VARIANTS[self.variant].head == "none":
            raise ValueError("variant plain has no discriminator: set best_of 1 and take label out of filters.chain")
        if self.variant == "filter" and not judged:
            raise ValueError("variant filter needs label in filters.chain, or best_of above 1")
        return self


class ChargedVariant(Fitted):
    """A variant that is charged by itself; what its method is told stands under the method's name."""

    method: str = Field(description="How the rows are made.")

    @model_validator(mode="after")
    def _fits_its_method(self) -> "ChargedVariant":
        problem = method(self.method).problem(getattr(self, self.method), self.purpose, self.epsilon)
        if problem:
            raise ValueError(problem)
        return self


def _variant(known: Method) -> type[ChargedVariant]:
    """The section of a variant of one method."""
    named: Any = Field(description="How the rows are made.")
    fields: dict[str, Any] = {"method": (Literal[known.name], named), known.name: (known.settings, ...)}
    return create_model(f"{known.name}_variant", __base__=ChargedVariant, __doc__=known.title, **fields)


if TYPE_CHECKING:
    Variant: TypeAlias = DpLmVariant | ChargedVariant
    Audited: TypeAlias = str
else:
    Variant = Annotated[Union[(DpLmVariant, *map(_variant, CHARGED))], Field(discriminator="method")]
    Audited = Literal[tuple(known.name for known in METHODS if known.untwinned is None)]


class RunSettings(Settings):
    """What runs. Names are keys of `lms`, `discriminators` and `variants`."""

    dp_train: tuple[str, ...] = Field(description="Language models to fit.")
    discriminator: Mapping[str, str] = Field(description="Discriminators to fit, each with its language model.")
    dp_lm: Mapping[str, str] = Field(
        description="Variants of method dp_lm, each with the fitted model (a language model, or a discriminator with "
        "its language model) that it draws from."
    )
    teach_similar: tuple[str, ...] = Field(description="Public language models to teach, keys of `taught`.")
    private_predict: Mapping[str, str] = Field(
        description="Variants of methods predict and fewshot, each with the public language model that reads its "
        "prompts: base, or taught/<name> for one of teach_similar."
    )
    select: tuple[str, ...] = Field(description="Variants of method select.")
    private_evolve: Mapping[str, str] = Field(description="Variants of method evolve, each with its author.")
    vote_select: Mapping[str, str] = Field(
        description="Variants of method vote_select, each with the variant of another method that it chooses from."
    )
    decoder_pretrain: tuple[str, ...] = Field(description="Embedding decoders to train, keys of `decoders`. Free.")
    eda_evolve: Mapping[str, str] = Field(description="Variants of method embed, each with its decoder.")
    sentdp: tuple[str, ...] = Field(description="Variants of method sentdp.")
    custext: tuple[str, ...] = Field(description="Variants of method custext, for reference.")
    embedding_audit: tuple[str, ...] = Field(
        description="Language models whose states are examined: base (the public one) and those of dp_train."
    )
    in_context_baseline: tuple[Literal["real"], ...] = Field(
        description="[real] where in_context names rows, else []: demonstrations from the real rows say whether the "
        "language model can judge at all."
    )
    in_context: tuple[str, ...] = Field(
        description="Rows whose texts stand as demonstrations before test items: public_only, and those of evaluate."
    )
    evaluate: tuple[str, ...] = Field(description="Every variant above, in the order of the pages.")
    audit: tuple[str, ...] = Field(
        description="Variants of evaluate whose rows are attacked without a model, searched for memorised content, and "
        "compared with the private rows; [] leaves these audits out."
    )
    shadow_mia: Mapping[str, str] = Field(
        description="Variants of dp_lm that are attacked with shadow models too, each with its fitted model: "
        "slow, for several models are trained, on no record that is guessed about."
    )
    twins: tuple[Audited, ...] = Field(
        description="Methods whose code is audited end to end, on invented records, beside copies that are broken on "
        "purpose. Free: no private row is read."
    )


class Finetune(Settings):
    """Fine-tuning `models.classifier` as an evaluator."""

    epochs: int = Field(default=3, ge=1, description="Passes over the synthetic rows.")
    batch: int = Field(default=32, ge=1, description="Rows per step.")
    learning_rate: float = Field(default=5e-5, gt=0, description="Peak learning rate.")
    max_tokens: int = Field(default=128, ge=8, description="Tokens kept of a text.")


class PublicOnly(Settings):
    """The epsilon 0 row."""

    rows: int = Field(default=1000, ge=1, description="Public rows to choose, over all labels.")


class Utility(Settings):
    """Train on synthetic, test on real."""

    evaluators: tuple[Literal["minilm_lr", "tfidf_lr", "finetuned"], ...] = Field(
        default=("minilm_lr", "tfidf_lr"), min_length=1, description="Classifiers."
    )
    seeds: int = Field(default=3, ge=3, description="Repetitions of every classifier.")
    validation_share: float = Field(
        default=0.2, gt=0, lt=1, description="Share of the synthetic rows that choose the regularisation."
    )
    finetune: Finetune = Finetune()
    in_context: InContext | None = Field(
        default=None,
        description="Answering in context: the public language model reads rows as demonstrations; null: not asked.",
    )


class SeparationSettings(Settings):
    """How well the states of a language model tell the labels apart."""

    rows: int = Field(
        default=1000, ge=20, description="Private rows that are read of the training and of the test part, at most."
    )
    max_tokens: int = Field(default=64, ge=1, description="Tokens kept of a text.")
    trees: int = Field(default=200, ge=10, description="Trees of the random forest.")
    projections: tuple[Literal["pca", "umap"], ...] = Field(
        default=("pca", "umap"), description="Pictures of the test rows' states."
    )


class Audit(Settings):
    """The attacks and their controls."""

    size: int = Field(
        ge=20,
        description="Expected records in the audit subset, or persons where there is a unit column: half of them never "
        "train.",
    )
    similarity: float = Field(
        default=0.7, gt=0, le=1, description="Jaccard similarity from which two texts are near-duplicates."
    )
    shingle: int = Field(default=3, ge=1, description="Words per shingle of the near-duplicate test.")
    orders: tuple[int, ...] = Field(default=(3, 4, 5, 6, 7, 10, 13), min_length=1, description="n of the n-gram audit.")
    resamples: int = Field(default=1000, ge=100, description="Bootstrap and permutation resamples.")
    guesses: float = Field(
        default=0.2, gt=0, le=1, description="Share of the audit records that the attacker guesses about."
    )
    alpha: float = Field(default=0.05, gt=0, lt=0.5, description="Error probability of the lower bound on epsilon.")
    separation: SeparationSettings = SeparationSettings()


class Testing(Settings):
    """For tests only."""

    noise_seed: int | None = Field(
        default=None,
        description="A fixed seed of the Gaussian noise and Poisson draws; nothing made with one is private.",
    )


class Params(Settings):
    """params.yaml."""

    version: str = Field(description="Version of palimpsest that the workspace was made for.")
    seed: int = Field(default=7, ge=0, description="Governs only what touches no private row.")
    dataset: Dataset
    world: InventedWorld | None = None
    privacy: Privacy
    models: Models
    run: RunSettings
    taught: Mapping[str, Similar] = {}
    authors: Mapping[str, Author] = {}
    decoders: Mapping[str, DecoderSettings] = {}
    lms: Mapping[str, LanguageModel] = {}
    discriminators: Mapping[str, DiscriminatorSettings] = {}
    variants: Mapping[str, Variant]
    public_only: PublicOnly = PublicOnly()
    utility: Utility = Utility()
    audit: Audit
    release: ReleaseSettings
    testing: Testing = Testing()

    @field_validator("taught", "authors", "decoders", "lms", "discriminators", "variants")
    @classmethod
    def _names(cls, named: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        reserved = () if info.field_name in ("authors", "decoders") else RESERVED  # those make no file beside a model
        for name in named:
            if name in reserved or not name.replace("_", "").isalnum() or not name.islower():
                raise ValueError(f"a name is lower-case letters, digits and _, and not {reserved}, got {name!r}")
        return named

    @model_validator(mode="after")
    def _cross_checks(self) -> "Params":
        for check in (
            _check_delta,
            _check_world,
            _check_run,
            _check_task,
            _check_heads,
            _check_discriminators,
            _check_sources,
            _check_authors,
            _check_batches,
            _check_priors,
            _check_finetuned,
            _check_in_context,
            _check_audit,
            _check_release,
            _check_ledger,
        ):
            check(self)
        return self

    @property
    def delta(self) -> float:
        """The asset's delta."""
        return self.privacy.budget.delta or default_delta(self.schema_of_data.n_units)

    @property
    def schema_of_data(self) -> PublicSchema:
        """The public facts of the data set."""
        data = self.dataset
        return PublicSchema(
            asset=data.asset,
            task=data.task,
            text=data.text,
            n_public=data.n_public,
            max_length=data.max_length,
            label=data.label,
            labels=dict(data.labels),
            unit_column=data.unit.column,
            max_rows_per_unit=data.unit.max_rows,
            n_persons=data.unit.persons,
            json_schema=data.json_schema,
        )

    @property
    def fitted(self) -> dict[str, "LanguageModel | DiscriminatorSettings"]:
        """Every model that can be fitted to private rows, by name."""
        return {**self.lms, **self.discriminators}

    @property
    def charged(self) -> dict[str, Fitted]:
        """Everything that asks private rows something, by name: models that are fitted, and variants that write."""
        writing = {name: row for name, row in self.variants.items() if isinstance(row, Fitted)}
        return {**self.fitted, **writing}

    @property
    def may_leave(self) -> tuple[str, ...]:
        """The variants that a card describes: those to release, or while none is named, all that are meant for it."""
        meant = tuple(name for name in self.run.evaluate if self.source_of(name).purpose == "release")
        return self.release.variants or meant

    def source_of(self, variant: str) -> Fitted:
        """What a variant's rows are charged as: the model that they are drawn from, or the variant itself."""
        return self.charged[self.run.dp_lm.get(variant, variant)]

    def flags(self) -> list[str]:
        """What is allowed but should be looked at: shown by `plan` and in the report."""
        found = []
        schema = self.schema_of_data
        if math.isclose(self.delta, 1.0 / schema.n_units, rel_tol=1e-9):
            found.append(
                f"privacy.budget.delta equals 1 / {schema.n_units}: a mechanism that publishes all of one "
                f"{schema.unit} would meet it."
            )
        for name, model in self.charged.items():
            if MEANINGLESS_EPSILON < model.epsilon < math.inf:
                found.append(f"{name}: epsilon is above {MEANINGLESS_EPSILON:g}: such a guarantee means little.")
        for name, row in self.variants.items():
            settings = getattr(row, row.method, None)
            if isinstance(row, Fitted) and row.purpose == "release" and getattr(settings, "batch", 1) > 1:
                found.append(
                    f"{name}: batch is above 1: private texts that are encoded together move each other's vectors by "
                    "rounding, which the guarantee does not cover."
                )
        if self.testing.noise_seed is not None:
            found.append("testing.noise_seed is set: NOTHING made by this run is private.")
        return found


def _check_delta(params: Params) -> None:
    units, unit = _declared(params)
    if params.delta > 1.0 / units * (1 + 1e-12):
        raise ValueError(
            f"privacy.budget.delta is {params.delta!r}; allowed is at most 1 / n for the {units} {unit}s declared, "
            f"{1 / units:.3g}"
        )


def _check_world(params: Params) -> None:
    world, unit = params.world, params.dataset.unit
    if world is None or world.authors is None:
        return
    if world.authors > world.private_rows:
        raise ValueError(f"world.authors is {world.authors}; allowed is at most world.private_rows")
    if unit.column != CUSTOMER:
        raise ValueError(
            f"world.authors is {world.authors}, so a person has several tickets; dataset.unit.column must then be "
            f"{CUSTOMER}, got {unit.column!r}"
        )


def _declared(params: Params) -> tuple[int, str]:
    """The declared number of units of privacy, and what a unit is."""
    schema = params.schema_of_data
    return schema.n_units, schema.unit


def _check_task(params: Params) -> None:
    """Every method that runs can do the task."""
    task, trained = params.dataset.task, {known.stage: known for known in METHODS if known not in CHARGED}
    for stage in stages_that_spend():
        for name in getattr(params.run, stage):
            known = trained.get(stage) or method(params.variants[name].method)
            if task not in known.tasks:
                able = " and ".join(known.tasks)
                raise ValueError(f"run.{stage} names {name!r}; the task is {task}, method {known.name} is for {able}")


def _check_run(params: Params) -> None:
    run = params.run
    _known("run.dp_train", run.dp_train, "lms", params.lms)
    _known("run.discriminator", run.discriminator, "discriminators", params.discriminators)
    _known("run.discriminator", run.discriminator.values(), "run.dp_train", run.dp_train)
    drawn = []
    for key, methods in _METHODS.items():
        named = list(getattr(run, key))
        rows = [name for name, variant in params.variants.items() if variant.method in methods]
        _known(f"run.{key}", named, f"variants of method {' and '.join(methods)}", rows)
        drawn += named
    _known("run.teach_similar", run.teach_similar, "taught", params.taught)
    readers = [*(f"taught/{name}" for name in run.teach_similar), "base"]
    _known("run.private_predict", run.private_predict.values(), "run.teach_similar, and base", readers)
    _known("run.dp_lm", run.dp_lm.values(), "run.dp_train and run.discriminator", [*run.dp_train, *run.discriminator])
    _known("run.private_evolve", run.private_evolve.values(), "authors", params.authors)
    _known("run.decoder_pretrain", run.decoder_pretrain, "decoders", params.decoders)
    _known("run.eda_evolve", run.eda_evolve.values(), "run.decoder_pretrain", run.decoder_pretrain)
    sources = [name for name in drawn if name not in run.vote_select]
    _known("run.vote_select", run.vote_select.values(), "variants of other methods that run", sources)
    _known("run.embedding_audit", run.embedding_audit, "run.dp_train, and base", [*run.dp_train, "base"])
    others = sorted(name for name, variant in params.variants.items() if isinstance(variant, Fitted))
    names = Counter([*params.lms, *params.discriminators, *others])
    if shared := sorted(name for name, count in names.items() if count > 1):
        raise ValueError(
            f"lms, discriminators and the variants that are charged name {shared} twice; allowed is each name once"
        )
    if sorted(run.evaluate) != sorted(drawn):
        raise ValueError(f"run.evaluate is {list(run.evaluate)}; it must list each variant of run once: {drawn}")


# Key of `run` -> methods whose variants it names.
_METHODS = {"dp_lm": ("dp_lm",)} | {
    stage: tuple(known.name for known in CHARGED if known.stage == stage) for stage in (one.stage for one in CHARGED)
}


def _known(key: str, names: Iterable[str], section: str, allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise ValueError(f"{key} names {name!r}; allowed are those of {section}: {sorted(allowed)}")


def _check_heads(params: Params) -> None:
    """Each variant draws from a model with the discriminator that it needs."""
    for name, model in params.run.dp_lm.items():
        row = params.variants[name]
        assert isinstance(row, DpLmVariant)
        problem = _head_problem(params, VARIANTS[row.variant], model)
        if problem:
            raise ValueError(f"variants.{name} is {row.variant!r} and run.dp_lm gives it {problem}")


def _head_problem(params: Params, kind: Kind, model: str) -> str | None:
    if kind.head == "own":
        if model in params.lms:
            return f"{model!r}, a language model; it needs a discriminator (run.discriminator)"
        reads = params.discriminators[model].train.reads
        return f"{model!r}, which reads texts, not states" if kind.steering == "pplm" and reads == "encoder" else None
    if model not in params.lms:
        return f"{model!r}; it needs a language model"
    train = params.lms[model].train
    if kind.head == "joint" and not train.discriminator_weight:
        return f"{model!r}, which has no discriminator; set its discriminator_weight above 0"
    if kind.steering == "state" and train.discriminator_reads != "both":
        return f"{model!r}, whose discriminator does not read embeddings; set its discriminator_reads to both"
    return None


def _check_discriminators(params: Params) -> None:
    for name, model in params.run.discriminator.items():
        own, lm = params.discriminators[name], params.lms[model]
        if own.purpose == "release" and lm.purpose == "reference":
            raise ValueError(f"discriminators.{name} is meant for release, but its language model {model!r} is not")
        if own.epsilon <= lm.epsilon < math.inf:
            raise ValueError(
                f"discriminators.{name}.epsilon is {own.epsilon:g} and counts its language model {model!r}, "
                f"which takes {lm.epsilon:g} alone: allowed is more than that"
            )


def _check_sources(params: Params) -> None:
    """A choice among another variant's rows is charged on top of them."""
    for name, source in params.run.vote_select.items():
        own, below = params.charged[name], params.source_of(source)
        if own.purpose == "release" and below.purpose == "reference":
            raise ValueError(f"variants.{name} is meant for release, but its source {source!r} is not")
        if own.epsilon <= below.epsilon < math.inf:
            raise ValueError(
                f"variants.{name}.epsilon is {own.epsilon:g} and counts its source {source!r}, which takes "
                f"{below.epsilon:g} alone: allowed is more than that"
            )


_TALKERS = ("local", "endpoint")


def _check_authors(params: Params) -> None:
    """Keywords are of public labels, and what needs labels or the prompt of one has them."""
    labels = set(params.dataset.labels)
    for name, author in params.authors.items():
        unknown = set(getattr(getattr(author, "prompts", None), "keywords", {})) - labels - {"*"}
        if unknown:
            raise ValueError(f"authors.{name}.prompts.keywords names {sorted(unknown)}; allowed are labels, and *")
    for name, chosen in params.run.private_evolve.items():
        exact = params.charged[name].purpose == "reference" or params.testing.noise_seed is not None
        if exact and params.authors[chosen].kind == "endpoint":
            raise ValueError(
                f"variants.{name} is not private and would send what rows chose to the endpoint {chosen!r}"
            )
    talking = [name for name, author in params.run.private_evolve.items() if params.authors[author].kind in _TALKERS]
    if params.dataset.task == "json" and talking:
        raise ValueError(
            f"run.private_evolve gives {talking} an author that answers in words; task json needs base or corpus"
        )


def _check_batches(params: Params) -> None:
    units, unit = _declared(params)
    for name, model in params.fitted.items():
        if model.train.batch > units:
            raise ValueError(
                f"{name}: train.batch is {model.train.batch}; allowed is at most the {units} {unit}s declared"
            )


def _check_priors(params: Params) -> None:
    priors = {f"lms.{name}.train": model.train.prior for name, model in params.lms.items()}
    for name, row in params.variants.items():
        priors[f"variants.{name}.{row.method}"] = getattr(getattr(row, row.method, None), "prior", None)
    for key, prior in priors.items():
        unknown = set(prior or {}) ^ set(params.dataset.labels)
        if prior is not None and unknown:
            raise ValueError(f"{key}.prior and dataset.labels differ in {sorted(unknown)}")


def _check_finetuned(params: Params) -> None:
    if "finetuned" in params.utility.evaluators and params.models.classifier is None:
        raise ValueError("utility.evaluators names 'finetuned'; models.classifier must then name an encoder, got null")


def _check_in_context(params: Params) -> None:
    run, settings = params.run, params.utility.in_context
    allowed = [*run.evaluate, *(["public_only"] if params.dataset.labels else [])]
    _known("run.in_context", run.in_context, "run.evaluate, and public_only where there are labels", allowed)
    if bool(run.in_context) > bool(run.in_context_baseline):
        raise ValueError("run.in_context names rows; run.in_context_baseline must then be [real], got []")
    if run.in_context_baseline and settings is None:
        raise ValueError("run.in_context_baseline is [real]; utility.in_context must then be filled in, got null")
    if run.in_context_baseline and params.dataset.label is None:
        raise ValueError(f"run.in_context_baseline is [real]; task {params.dataset.task} has no label to ask for")
    if settings is not None:
        settings.words(tuple(params.dataset.labels))


def _check_audit(params: Params) -> None:
    units, unit = _declared(params)
    if params.audit.size > units:
        raise ValueError(f"audit.size is {params.audit.size}; allowed is at most the {units} {unit}s declared")


def _check_release(params: Params) -> None:
    run, release = params.run, params.release
    _known("run.audit", run.audit, "run.evaluate", run.evaluate)
    for name, model in run.shadow_mia.items():
        if run.dp_lm.get(name) != model:
            raise ValueError(f"run.shadow_mia has {name}: {model}; allowed are the pairs of run.dp_lm")
    _known("release.variants", release.variants, "run.evaluate", run.evaluate)
    for name in release.variants:
        if params.source_of(name).purpose != "release":
            raise ValueError(f"release.variants names {name!r}, which is a reference run and never leaves")
    if release.gates.accuracy is not None and params.dataset.public_test is None:
        raise ValueError("release.gates.accuracy is asked for; dataset.public_test must then name a file, got null")


def _check_ledger(params: Params) -> None:
    place = params.privacy.ledger
    if place is not None and params.world is None and "://" not in place and not place.startswith(("/", "~")):
        raise ValueError(
            f"privacy.ledger is {place!r}, inside the workspace; for data of your own it must be an absolute path or a "
            "database URL, because a second copy of the workspace would start with a full budget"
        )
