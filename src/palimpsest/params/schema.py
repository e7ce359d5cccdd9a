"""The schema of params.yaml: every knob of the project, described once, checked before any stage starts."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import Field, ValidationInfo, create_model, field_validator, model_validator

from palimpsest.methods.dp_lm.settings import VARIANTS, DiscriminatorTrain, DpLmGenerate, DpLmTrain
from palimpsest.methods.evolve.authors import Author
from palimpsest.methods.registry import CHARGED, METHODS, method
from palimpsest.methods.shared.method import Method
from palimpsest.models.decoder.settings import DecoderSettings
from palimpsest.models.settings import Similar
from palimpsest.params.checks import problems
from palimpsest.params.extension import RUN, brought, extended
from palimpsest.params.preset import presets
from palimpsest.params.release import ReleaseSettings
from palimpsest.params.sections import (
    MOST_NAME,
    Audit,
    Compute,
    Dataset,
    Models,
    Privacy,
    PublicLm,
    PublicOnly,
    Stores,
    Testing,
    Utility,
    ZeroShot,
)
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.settings import Settings
from palimpsest.workspace import BASE_LM, PUBLIC_LM, PUBLIC_ONLY, REAL, UNTOUCHED

RESERVED = (
    REAL, PUBLIC_ONLY, PUBLIC_LM, "base", "untouched", "taught", "decoders", "next_token", "checkpoints", "models",
    "classifiers",
)  # fmt: skip
MEANINGLESS_EPSILON = 10.0


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
    variant: Literal["plain", "filter", "pplm", "multitask", "fudge", "fudge_state"]
    """The row of the paper's table that this is. plain: from the prompt alone. filter, pplm: with a discriminator of
    its own. multitask (PPLM), fudge: with the one that was trained with the language model. fudge_state: fudge that
    judges candidates from the state before them."""
    generate: DpLmGenerate

    @model_validator(mode="after")
    def _a_judge_where_one_is_needed(self) -> "DpLmVariant":
        judged = self.generate.best_of > 1 or "label" in self.generate.filters.chain
        if judged and VARIANTS[self.variant].head == "none":
            raise ValueError("variant plain has no discriminator: set best_of 1 and take label out of filters.chain")
        if self.variant == "filter" and not judged:
            raise ValueError("variant filter needs label in filters.chain, or best_of above 1")
        if self.generate.precision == "bf16" and VARIANTS[self.variant].steering == "pplm":
            raise ValueError("gradients that steer need more digits than bf16 has: set generate.precision float32")
        return self

    @property
    def settings(self) -> Any:
        """The settings of its method."""
        return self.generate


class ChargedVariant(Fitted):
    """A variant that is charged by itself; what its method is told stands under the method's name."""

    method: str = Field(description="How the rows are made.")

    @property
    def settings(self) -> Any:
        """The settings of its method, an instance of `Method.settings`."""
        return getattr(self, self.method)

    @model_validator(mode="after")
    def _fits_its_method(self) -> "ChargedVariant":
        problem = method(self.method).problem(self.settings, self.purpose, self.epsilon)
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
else:
    Variant = Annotated[Union[(DpLmVariant, *map(_variant, CHARGED))], Field(discriminator="method")]


class _Makes(Settings):
    """What is fitted and what is written, under the stages that do it: what is named there by name elsewhere."""

    dp_train: tuple[str, ...]
    discriminator: Mapping[str, str]  # each with its language model
    dp_lm: Mapping[str, str]  # each variant with the fitted model, or the discriminator, that it draws from
    teach_similar: tuple[str, ...]
    private_predict: Mapping[str, str]  # each with the language model that reads its prompts: base, or taught/<name>
    select: tuple[str, ...]
    private_evolve: Mapping[str, str]  # each with its author
    vote_select: Mapping[str, str]  # each with the variant of another method that it chooses from
    decoder_pretrain: tuple[str, ...]
    eda_evolve: Mapping[str, str]  # each with its decoder
    steer: tuple[str, ...]
    restate: Mapping[str, str]  # each with the variant that it changes
    choose: Mapping[str, tuple[str, ...]]  # each with the variants that it chooses from
    phrases: tuple[str, ...]


def _others() -> dict[str, Any]:
    """Return the keys of all other methods: their variants, each with what it is drawn from, if anything."""
    kinds = {known.run: tuple[str, ...] if known.source == "none" else Mapping[str, str] for known in METHODS}
    return {key: (kind, ...) for key, kind in kinds.items() if key not in _Makes.model_fields}


if TYPE_CHECKING:
    _MakesAll: TypeAlias = _Makes
else:
    _MakesAll = create_model("_MakesAll", __base__=_Makes, **_others())


class RunSettings(_MakesAll):
    """What runs, by stage. Names are keys of `lms`, `discriminators` and `variants`."""

    evaluate: tuple[str, ...]  # every variant above, in the order of the pages
    audit: tuple[str, ...]
    zero_shot: Mapping[str, str]  # each with its author


if not TYPE_CHECKING:
    RunSettings = extended(RUN, RunSettings)


class Swept(Settings):
    """A variant that `palimpsest sweep` made."""

    of: str = Field(description="The variant that it was made from.")
    keys: tuple[str, ...] = Field(min_length=1, description="What was varied.")


class Params(Settings):
    """params.yaml."""

    version: str = Field(description="Version of palimpsest that the workspace was made for.")
    preset: str | None = Field(
        default=None,
        description="The preset that `init` wrote, if one. It sets nothing: `plan` says by it what the paper's own "
        "accounting leaves out.",
    )
    seed: int = Field(
        default=7,
        ge=0,
        description="Draws what is made of public texts and noisy answers, and what audits pick and shuffle; never "
        "noise, batches or keys.",
    )
    dataset: Dataset
    world: str | None = Field(
        default=None,
        pattern="^[a-z]+$",  # a name and no path: guards for real people are off where a world is set
        description="An invented world, demo or another that a clone made (docs/world.md); null for your own data.",
    )
    privacy: Privacy
    models: Models
    run: RunSettings
    taught: Mapping[str, Similar] = {}
    authors: Mapping[str, Author] = {}
    decoders: Mapping[str, DecoderSettings] = {}
    zero_shot: Mapping[str, ZeroShot] = {}
    lms: Mapping[str, LanguageModel] = {}
    discriminators: Mapping[str, DiscriminatorSettings] = {}
    variants: Mapping[str, Variant]
    public_only: PublicOnly = PublicOnly()
    public_lm: PublicLm | None = None
    utility: Utility = Utility()
    audit: Audit
    release: ReleaseSettings
    compute: Compute = Compute()
    stores: Stores = Stores()
    sweeps: Mapping[str, Swept] = Field(
        default={},
        description="Variants that `palimpsest sweep` made, and from what. It sets nothing: the privacy statement says "
        "by it that one of several was chosen.",
    )
    testing: Testing = Testing()

    @field_validator("taught", "authors", "decoders", "zero_shot", "lms", "discriminators", "variants")
    @classmethod
    def _names(cls, named: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        reserved = (
            () if info.field_name in ("authors", "decoders", "zero_shot") else RESERVED
        )  # those make no file beside a model
        for name in named:
            if name in reserved or not name.replace("_", "").isalnum() or not name.islower():
                taken = f", and none of {', '.join(reserved)}" if reserved else ""
                raise ValueError(f"a name is lower-case letters, digits and _{taken}, got {name!r}")
            if len(name.encode()) > MOST_NAME:
                raise ValueError(f"files are named after it, so a name has at most {MOST_NAME} bytes, got {name!r}")
        return named

    @model_validator(mode="after")
    def _fits_together(self) -> "Params":
        if problem := next(problems(self), None):
            raise ValueError(problem)
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
    def methods(self) -> list[str]:
        """The methods of all variants that run, and that of a discriminator where one is fitted."""
        judges = {"discriminator"} if self.run.discriminator else set[str]()
        return sorted({self.variants[name].method for name in self.run.evaluate} | judges)

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
    def learns_prompts(self) -> bool:
        """Whether the public language model is taught, on public text, what a prompt is."""
        asked = self.models.prompts
        return asked is not None and asked.epochs > 0 and bool(self.dataset.labels)

    @property
    def untouched(self) -> Path:
        """The folder of the public language model by which texts are judged and filtered.

        That of a named model is unchanged, whatever a copy of it learned: otherwise it would judge by its own guesses.
        """
        named = self.models.lm != Models.model_fields["lm"].default
        return UNTOUCHED if self.learns_prompts and named else BASE_LM

    @property
    def writes_alone(self) -> bool:
        """Whether the public language model writes a row of its own, by a prompt that private rows are read with.

        A prompt for a chat model gives an instruction and is not a text to continue.
        """
        readers = (self.variants[name] for name, source in self.run.private_predict.items() if source == "base")
        asked = (row.settings.prompt for row in readers)
        prompted = bool(self.run.dp_train or self.run.steer or self.run.phrases) or any(
            not getattr(prompt, "chat", False) for prompt in asked
        )
        return self.public_lm is not None and prompted

    @property
    def at_epsilon_0(self) -> tuple[str, ...]:
        """The rows that no private row had a part in."""
        return (PUBLIC_ONLY, PUBLIC_LM) if self.writes_alone else (PUBLIC_ONLY,)

    @property
    def may_leave(self) -> tuple[str, ...]:
        """The variants that a card describes: those to release or, while none is named, all with that purpose."""
        meant = tuple(name for name in self.run.evaluate if self.source_of(name).purpose == "release")
        return self.release.variants or meant

    @property
    def swept(self) -> frozenset[str]:
        """Every variant that stood beside others in a sweep: its points, and what they were made from."""
        return frozenset({*self.sweeps, *(point.of for point in self.sweeps.values())})

    def source_of(self, variant: str) -> Fitted:
        """Return what a variant's rows are charged as: the model that they are drawn from, or the variant itself."""
        return self.charged[self.run.dp_lm.get(variant, variant)]

    def flags(self) -> list[str]:
        """Return warnings about what is allowed but should be looked at, for `plan` and the report."""
        preset = presets().get(self.preset or "")
        warnings = [f"{preset.name}: {said}" for said in preset.beyond] if preset else []
        schema = self.schema_of_data
        if math.isclose(self.delta, 1.0 / schema.n_units, rel_tol=1e-9):
            warnings.append(
                f"privacy.budget.delta equals 1 / {schema.n_units}: a mechanism that publishes all of one "
                f"{schema.unit} would meet it."
            )
        for name, model in self.charged.items():
            if MEANINGLESS_EPSILON < model.epsilon < math.inf:
                warnings.append(f"{name}: epsilon is above {MEANINGLESS_EPSILON:g}: such a guarantee means little.")
        for name, row in self.variants.items():
            if isinstance(row, Fitted) and row.purpose == "release" and getattr(row.settings, "batch", 1) > 1:
                warnings.append(
                    f"{name}: batch is above 1: private texts that are encoded together move each other's vectors by "
                    "rounding, which the guarantee does not cover."
                )
        warnings += [said for keys in brought() for said in keys.warnings(self)]
        if self.testing.noise_seed is not None:
            warnings.append("testing.noise_seed is set: NOTHING made by this run is private.")
        return warnings
