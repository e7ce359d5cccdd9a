"""The schema of params.yaml: every knob of the project, described once, checked before any stage starts."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from palimpsest.params.dp_lm import DpLmGenerate, DpLmTrain, EmbeddedLm, PromptWarmUp
from palimpsest.records.schema import PublicSchema, default_delta

RESERVED = ("real", "public_only")
MEANINGLESS_EPSILON = 10.0
_NAME = r"^[a-z][a-z0-9_]*$"


class Section(BaseModel):
    """A section of params.yaml: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Unit(Section):
    """Who one person is."""

    column: str | None = Field(description="Column that names the person; null where one row is one person.")
    max_rows: int = Field(ge=1, description="Public cap on rows per person; more are left out, chosen by a keyed hash.")


class Dataset(Section):
    """The private data set and the public files beside it."""

    asset: str = Field(pattern=_NAME, description="The data asset's name in the ledger.")
    task: Literal["classify", "text"] = Field(description="classify: one label a record. text: no label.")
    private: str = Field(min_length=1, description="The private file: CSV, TSV, JSONL or Parquet, plain or gzipped.")
    test: str | None = Field(description="Private test file; null cuts a test part from the private file.")
    test_share: float = Field(ge=0, lt=1, description="Probability of the test part where no test file is given.")
    public: str = Field(min_length=1, description="Public text of the same kind, with the same text column.")
    public_labels: bool = Field(description="Whether the public file has the label column, with the same labels.")
    public_test: str | None = Field(description="A labelled test file declared public, or null.")
    text: str = Field(min_length=1, description="Name of the text column.")
    label: str | None = Field(description="Name of the label column; null for task text.")
    labels: Mapping[str, str] = Field(description="The public list of labels, each with a public description.")
    n_public: int = Field(ge=10, description="Public, approximate number of private records.")
    max_length: int = Field(ge=1, description="Longest text kept, in characters; longer ones are cut.")
    unit: Unit

    @model_validator(mode="after")
    def _labels_fit_task(self) -> "Dataset":
        if self.task == "classify" and (self.label is None or len(self.labels) < 2):
            raise ValueError("task classify needs `label` and at least two `labels`")
        if self.text == self.label:
            raise ValueError(f"text and label name the same column, {self.text!r}")
        if self.task == "text" and (self.label is not None or self.labels):
            raise ValueError("task text has no `label` and no `labels`")
        return self


class World(Section):
    """The invented world of the embedded data set. Null for data of your own."""

    seed: int = Field(description="The same seed makes the same world.")
    private_rows: int = Field(ge=100, description="Labelled private tickets.")
    test_rows: int = Field(ge=100, description="Labelled private test tickets.")
    public_rows: int = Field(ge=100, description="Public tickets, without labels.")
    public_test_rows: int = Field(ge=100, description="Labelled test tickets declared public.")


class Budget(Section):
    """The cap on what the data asset may ever give away."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="Cap on the total epsilon over all releases.")
    delta: float | None = Field(
        gt=0,
        lt=1,
        description="The asset's one delta, for every release and the total; null: 1 / (n_public ln n_public).",
    )


class Privacy(Section):
    """The budget and where it is metered."""

    budget: Budget
    ledger: str | None = Field(
        description="Path or database URL of the ledger; null: the user's data folder. PALIMPSEST_LEDGER overrides it."
    )


class Models(Section):
    """Where weights come from."""

    lm: str = Field(min_length=1, description="Causal LM: embedded, a local folder, or a hub name (name@revision).")
    encoder: str = Field(min_length=1, description="Sentence encoder: embedded, a local folder, or a hub name.")
    classifier: str | None = Field(description="Encoder to fine-tune as a further evaluator, or null.")
    embedded_lm: EmbeddedLm
    prompts: PromptWarmUp


class DpLmVariant(Section):
    """One row of the results: a method with its privacy target."""

    method: Literal["dp_lm"] = Field(description="How the rows are made.")
    variant: Literal["multitask"] = Field(description="The paper's row that this variant is.")
    purpose: Literal["release", "reference"] = Field(description="reference: stays in the private zone for ever.")
    epsilon: float = Field(gt=0, description="Target epsilon of the whole variant; .inf trains without noise.")
    train: DpLmTrain
    generate: DpLmGenerate

    @model_validator(mode="after")
    def _infinity_is_reference(self) -> "DpLmVariant":
        if math.isinf(self.epsilon) and self.purpose != "reference":
            raise ValueError("epsilon .inf is not private: mark the variant `purpose: reference`")
        return self


class Run(Section):
    """Which variants run, by method; names are keys of `variants`."""

    dp_lm: tuple[str, ...] = Field(description="Variants of method dp_lm.")
    evaluate: tuple[str, ...] = Field(description="Every variant above, in the order of the pages.")


class Finetune(Section):
    """Fine-tuning `models.classifier` as an evaluator."""

    epochs: int = Field(ge=1, description="Passes over the synthetic rows.")
    batch: int = Field(ge=1, description="Rows per step.")
    learning_rate: float = Field(gt=0, description="Peak learning rate.")
    max_tokens: int = Field(ge=8, description="Tokens kept of a text.")


class PublicOnly(Section):
    """The epsilon 0 row."""

    rows: int = Field(ge=1, description="Public rows to choose, over all labels.")


class Utility(Section):
    """Train on synthetic, test on real."""

    evaluators: tuple[Literal["minilm_lr", "tfidf_lr", "finetuned"], ...] = Field(
        min_length=1, description="Classifiers."
    )
    seeds: int = Field(ge=3, description="Repetitions of every classifier.")
    validation_share: float = Field(
        gt=0, lt=1, description="Share of the synthetic rows that choose the regularisation."
    )
    finetune: Finetune


class Audit(Section):
    """The attacks and their controls."""

    size: int = Field(ge=20, description="Expected records in the audit subset: half of them never train.")
    similarity: float = Field(gt=0, le=1, description="Jaccard similarity from which two texts are near-duplicates.")
    shingle: int = Field(ge=1, description="Words per shingle of the near-duplicate test.")
    orders: tuple[int, ...] = Field(min_length=1, description="n of the n-gram audit.")
    resamples: int = Field(ge=100, description="Bootstrap and permutation resamples.")
    guesses: float = Field(gt=0, le=1, description="Share of the audit records that the attacker guesses about.")
    alpha: float = Field(gt=0, lt=0.5, description="Error probability of the lower bound on epsilon.")


class Testing(Section):
    """For tests only."""

    noise_seed: int | None = Field(
        description="A fixed seed of the Gaussian noise and Poisson draws; nothing made with one is private."
    )


class Params(Section):
    """params.yaml."""

    version: str = Field(description="Version of palimpsest that the workspace was made for.")
    seed: int = Field(ge=0, description="Governs only what touches no private row.")
    dataset: Dataset
    world: World | None
    privacy: Privacy
    models: Models
    run: Run
    variants: Mapping[str, DpLmVariant]
    public_only: PublicOnly
    utility: Utility
    audit: Audit
    testing: Testing

    @field_validator("variants")
    @classmethod
    def _names(cls, variants: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in variants:
            if name in RESERVED or not name.replace("_", "").isalnum() or not name.islower():
                raise ValueError(
                    f"a variant's name is lower-case letters, digits and _, and not {RESERVED}, got {name!r}"
                )
        return variants

    @model_validator(mode="after")
    def _cross_checks(self) -> "Params":
        for check in (
            _check_delta,
            _check_run,
            _check_batches,
            _check_priors,
            _check_finetuned,
            _check_audit,
            _check_ledger,
        ):
            check(self)
        return self

    @property
    def delta(self) -> float:
        """The asset's delta."""
        return self.privacy.budget.delta or default_delta(self.dataset.n_public)

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
        )

    def flags(self) -> list[str]:
        """What is allowed but should be looked at: shown by `plan` and in the report."""
        found = []
        if math.isclose(self.delta, 1.0 / self.dataset.n_public, rel_tol=1e-9):
            found.append("privacy.budget.delta equals 1 / n_public: a mechanism that publishes one row would meet it.")
        for name, variant in self.variants.items():
            if MEANINGLESS_EPSILON < variant.epsilon < math.inf:
                found.append(
                    f"variants.{name}.epsilon is above {MEANINGLESS_EPSILON:g}: such a guarantee means little."
                )
        if self.testing.noise_seed is not None:
            found.append("testing.noise_seed is set: NOTHING made by this run is private.")
        return found


def _check_delta(params: Params) -> None:
    if params.delta > 1.0 / params.dataset.n_public * (1 + 1e-12):
        raise ValueError(
            f"privacy.budget.delta is {params.delta!r}; allowed is at most 1 / n_public = "
            f"{1 / params.dataset.n_public:.3g}"
        )


def _check_run(params: Params) -> None:
    named = [name for method in ("dp_lm",) for name in getattr(params.run, method)]
    for name in named:
        if name not in params.variants:
            raise ValueError(f"run.dp_lm names {name!r}; allowed are the keys of variants: {sorted(params.variants)}")
    if sorted(params.run.evaluate) != sorted(named) or len(set(named)) != len(named):
        raise ValueError(f"run.evaluate is {list(params.run.evaluate)}; it must list each variant of run once: {named}")


def _check_batches(params: Params) -> None:
    for name, variant in params.variants.items():
        if variant.train.batch > params.dataset.n_public:
            raise ValueError(
                f"variants.{name}.train.batch is {variant.train.batch}; allowed is at most dataset.n_public "
                f"= {params.dataset.n_public}"
            )


def _check_priors(params: Params) -> None:
    for name, variant in params.variants.items():
        unknown = set(variant.train.prior or {}) ^ set(params.dataset.labels)
        if variant.train.prior is not None and unknown:
            raise ValueError(f"variants.{name}.train.prior and dataset.labels differ in {sorted(unknown)}")


def _check_finetuned(params: Params) -> None:
    if "finetuned" in params.utility.evaluators and params.models.classifier is None:
        raise ValueError("utility.evaluators names 'finetuned'; models.classifier must then name an encoder, got null")


def _check_audit(params: Params) -> None:
    if params.audit.size > params.dataset.n_public:
        raise ValueError(f"audit.size is {params.audit.size}; allowed is at most n_public = {params.dataset.n_public}")


def _check_ledger(params: Params) -> None:
    place = params.privacy.ledger
    if place is not None and params.world is None and "://" not in place and not place.startswith(("/", "~")):
        raise ValueError(
            f"privacy.ledger is {place!r}, inside the workspace; for data of your own it must be an absolute path or a "
            "database URL, because a second copy of the workspace would start with a full budget"
        )
