"""The schema of params.yaml: every setting of the project, described once, checked before any stage starts."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, SerializeAsAny, Tag, ValidationInfo, field_validator, model_validator

from palimpsest.audit.next_token_settings import NEXT_TOKEN, NextToken
from palimpsest.devices import AUTO, NAMES
from palimpsest.methods.dp_lm.settings import VARIANTS, DiscriminatorTrain, DpLmGenerate, DpLmTrain
from palimpsest.methods.evolve.authors import Author
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.settings import Ends, Filters, UnjudgedFilters, WritesIn
from palimpsest.models.settings import BARE, DecoderSettings, EmbeddedLm, Named, Precision, PromptWarmUp, Similar, Words
from palimpsest.params.checks import problems
from palimpsest.params.file import RUN, extended, load_extensions, with_keys
from palimpsest.params.preset import presets
from palimpsest.records import schema, texts
from palimpsest.records.fields import domains_of
from palimpsest.records.schema import PublicSchema, default_delta
from palimpsest.records.structured import WHOLE_ROW
from palimpsest.records.vouched import EMBEDDED
from palimpsest.settings import TEXT, Follows, Settings, Stated, by_labels, by_model
from palimpsest.workspace import BASE_LM, PUBLIC_LM, PUBLIC_ONLY, REAL, UNTOUCHED, WRITTEN

LEAST_UNITS = 20  # records or persons: with fewer no audit can be made
NAME = r"^[a-z][a-z0-9_]*$"
USUAL_LENGTH = 1000  # characters
LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$"  # a tag of BCP 47
MOST_NAME = 100  # bytes of a name that file names contain: with all that is added, a file name has at most 255
MOST_BUDGET = 1e6  # epsilon, of which 20 is no protection any more
MOST_RECORDS = 10**12  # as many as nobody has
RESERVED = (
    REAL, PUBLIC_ONLY, PUBLIC_LM, "base", "untouched", "taught", "decoders", "next_token", "checkpoints", "models",
    "classifiers",
)  # fmt: skip
MEANINGLESS_EPSILON = 10.0


_LARGEST_AUDIT = 2000
_EVALUATORS: tuple[Literal["minilm_lr", "tfidf_lr"], ...] = ("minilm_lr", "tfidf_lr")
_WARM_UP = by_model({}, None, "the section's own defaults where `models.lm` is embedded, else `null`")
_ALONE = by_model(None, {}, "the section's own defaults where `models.lm` names one, else `null`")
_AUDIT_SIZE = Follows(
    "a fifth of the units of privacy, from 20 to 2,000",
    lambda stated, _: min(max(stated.units // 5, LEAST_UNITS), _LARGEST_AUDIT),
)
_TITLE = Follows('`"Synthetic rows of "` and `dataset.asset`', lambda stated, _: f"Synthetic rows of {stated.asset}")
_PURPOSE = Follows(
    '`"release"`; `"reference"` where epsilon is .inf',
    lambda _, written: "reference" if written.get("epsilon") == math.inf else "release",
)


class UnitSettings(Settings):
    """Who one person is: with a column, the person is the unit of privacy.

    Rows that name nobody are dealt with by themselves, then each person is held to the cap, then all rows of a person
    are placed together.
    """

    column: str | None = Field(default=None, min_length=1)
    """Column whose exact value is a person, who then is the unit of privacy; null where it is one row. It never changes
    for a data set once something was charged."""
    max_rows: int = Field(default=1, ge=1)
    """Public cap on rows per person, applied after rows that name nobody are left out and before the split; more are
    left out, chosen by a keyed hash."""
    persons: int | None = Field(default=None, ge=LEAST_UNITS)
    """Public, approximate number of persons, at most n_public; delta, rates and sizes follow from it. null where there
    is no column."""
    missing: Literal["drop", "refuse"] = "drop"
    """A row whose column is null, empty or blank names nobody. drop: each such row is left out by itself, before the
    cap. refuse: it is an error, whose file and row are in the private zone. Such rows never count as one person."""

    @model_validator(mode="after")
    def _require_both(self) -> "UnitSettings":
        if (self.column is None) != (self.persons is None):
            raise ValueError("column and persons go together: name both, or give null for both")
        if self.column is None and self.max_rows > 1:
            raise ValueError("max_rows is above 1 and column is null: without a column nothing is capped")
        return self


class Written(Settings):
    """Public text that an author writes from labels and their descriptions, shown no record and no public text."""

    author: str = Field(min_length=1)
    """A key of `authors`: kind local or endpoint, or base beside a named `models.lm`."""
    texts: int = Field(
        default=2000, ge=LEAST_UNITS, description="How many texts are asked for, evenly over the labels."
    )
    about: str | None = Field(default=None, min_length=1)
    """What the texts are, in public words that the author is told: questions that people ask an encyclopedia."""


class Dataset(Settings):
    """The private data set and the public files beside it."""

    asset: str = Field(pattern=NAME, description="The data asset's name in the ledger.")
    task: Literal["classify", "span", "text", "json"]
    """classify: one label of a public list a record. span: the label is free text and part of the record. text: no
    label. json: each record is a JSON object."""
    private: str = Field(min_length=1, description="The private file: CSV, TSV, JSONL, JSON or Parquet, also gzipped.")
    test: str | None = None
    """Private test file; null cuts a test part from the private file."""
    test_share: float = Field(default=0.1, ge=0, lt=1)
    """Probability of the test part where no test file is given."""
    public: str = Field(min_length=1)
    """A public file with text of the same kind, in the same text column. For task json that may hold records or plain
    text; where the column is *, a line is a record, or has its plain text under `text`."""
    written: Written | None = None
    """Instead of `public`: who writes such text; null: nobody."""
    public_license: str | None = None
    """Licence of the public texts, an SPDX identifier or a URL: some methods release them word for word, and cards say
    it; null: not stated."""
    public_labels: bool = False
    """Whether the public file has the label column, with the same labels."""
    public_test: str | None = Field(default=None, description="A labelled test file declared public, or null.")
    text: str = Field(min_length=1)
    """Name of the text column; for task json "*" where each line of a JSONL file is a record. A list, [title, body], or
    `title; body`, names several, which are joined to one text and split again in rows that come out;
    `turns(messages)` names a column of the turns of a conversation, which are joined likewise."""
    label: str | None = None
    """Name of the label column; null for tasks text and json. A list, [category, stars], or `category; stars`, names
    several: their labels are joined to one, and utility is measured of each apart, too. `list(tags)` names a column of
    lists: the different values of one, in their order of the alphabet, are its label, `angry + late`."""
    labels: Mapping[str, str] = {}
    """The public list of labels, each with a public description; {} for all tasks but classify. Of several columns it
    is a list for each, {category: {...}, stars: {...}}, for all combinations, or one of joined labels, `Arts; 5.0`."""
    json_schema: Mapping[str, Any] | None = None
    """The public JSON schema (draft 2020-12) of a record, an object with `properties`: its keys and their order; null
    for all tasks but json."""
    fields: Mapping[str, str | tuple[str, ...]] = {}
    """Columns beside the text that come out, too: name -> a public list of words, `number(0..120, 5)` with bounds and
    the width of a cell, or `date(2024-01..2026-12, month)` in days, weeks, months or years. A value beyond a bound
    counts as the bound; any other that has no cell is left empty. {}: none."""
    n_public: int = Field(ge=LEAST_UNITS, le=MOST_RECORDS, description="Public, approximate number of private records.")
    max_length: int = Field(default=USUAL_LENGTH, ge=1)
    """Longest text kept, in characters; longer ones are cut."""
    text_tokens: int | None = Field(default=None, ge=8)
    """Public: how many tokens a long text of the kind has, about; `max_tokens` of models follow, within 400. `init`
    takes it from the public texts where they are longer than usual."""
    bad_rows: Literal["stop", "drop"] = "stop"
    """A record with a field that cannot be read: a label that is not listed, bytes that are not UTF-8, a wrong type.
    stop: the first is an error, and a record with an empty text is kept. drop: each such record is left out by itself,
    one with an empty text too, before the cap. A fault of the file's structure, as a broken quote, always stops."""
    language: str = Field(default="en", pattern=LANGUAGE)
    """The language of the texts, a tag of BCP 47 (de, pt-BR, zh-Hans). A card states it, and chat authors are told."""
    unit: UnitSettings = UnitSettings()

    @property
    def units(self) -> int:
        """The declared number of units of privacy."""
        return self.n_public if self.unit.persons is None else self.unit.persons

    @model_validator(mode="before")
    @classmethod
    def _join_labels(cls, body: Any) -> Any:
        return schema.join_columns(body) if isinstance(body, Mapping) else body

    @model_validator(mode="before")
    @classmethod
    def _name_written(cls, body: Any) -> Any:
        """Name the file that an author writes, which has the labels of its texts."""
        if not isinstance(body, Mapping) or body.get("written") is None:
            return body
        return {"public": str(WRITTEN), "public_labels": bool(body.get("labels")), **body}

    @model_validator(mode="after")
    def _has_one_public_file(self) -> "Dataset":
        if (self.written is None) == (self.public == str(WRITTEN)):
            raise ValueError(
                f"public is {self.public!r}: name a file there, or an author under `written`, and not both"
            )
        return self

    @model_validator(mode="after")
    def _fits_task(self) -> "Dataset":
        if self.task == "classify" and (self.label is None or len(self.labels) < 2):
            raise ValueError("task classify needs `label` and at least two `labels`")
        if self.task == "span" and (self.label is None or self.labels):
            raise ValueError("task span needs `label`, and has no `labels`: a label is free text")
        if problem := schema.problem(tuple(self.labels), self.label):
            raise ValueError(problem)
        own = texts.names(self.text)
        if len(set(own)) < len(own) or "" in own:
            raise ValueError(f"text names {list(own)}: each column is named once")
        if self.text != WHOLE_ROW and own != (self.text,) and (self.task == "json" or self.written is not None):
            raise ValueError("text names several texts or turns: not for task json, nor where an author writes")
        if twice := set(own) & set(schema.names(self.label)):
            raise ValueError(f"text and label name the same column, {min(twice)!r}")
        if self.unit.column in own:
            raise ValueError(f"text and unit.column name the same column, {self.unit.column!r}")
        if (self.unit.persons or 0) > self.n_public:
            raise ValueError(f"unit.persons is {self.unit.persons}, more than n_public: each person has a record")
        if self.task in ("text", "json") and (self.label is not None or self.labels):
            raise ValueError(f"task {self.task} has no `label` and no `labels`")
        if self.task != "json" and self.text == WHOLE_ROW:
            raise ValueError(f"text is {WHOLE_ROW!r}; only for task json is a row a record")
        return self

    @model_validator(mode="after")
    def _fields_fit_task(self) -> "Dataset":
        taken = {*texts.names(self.text), *schema.names(self.label), *([self.unit.column] if self.unit.column else [])}
        if self.fields and self.task not in ("classify", "text"):
            raise ValueError(f"fields are for tasks classify and text, not for {self.task}; json has its own")
        if twice := sorted(taken & set(self.fields)):
            raise ValueError(f"fields names {twice}, which text, label or unit.column name already")
        domains_of(self.fields)
        return self

    @model_validator(mode="after")
    def _schema_fits_task(self) -> "Dataset":
        if (self.task == "json") != (self.json_schema is not None):
            raise ValueError(f"json_schema is for task json, which needs one; the task is {self.task}")
        if self.json_schema is not None:
            from palimpsest.records.conformity import record_problem  # with a library that few workspaces need

            if problem := record_problem(self.json_schema):
                raise ValueError(f"json_schema {problem}")
        return self


class BudgetSettings(Settings):
    """The cap on what the data asset may ever give away."""

    epsilon: float = Field(gt=0, le=MOST_BUDGET, allow_inf_nan=False, description="Cap on the total epsilon.")
    delta: float | None = Field(default=None, gt=0, lt=1)
    """The asset's one delta, for every release and the total, 1e-12 to 1 / n; null: 1 / (n ln n), with n the declared
    number of persons, or of records where there is no unit column."""
    filter: Literal["renyi", "gdp"] = "renyi"
    """What the total is counted in: Rényi divergences, or Gaussian DP, which is cheaper for most plans; fixed when the
    asset is registered."""
    milestones: tuple[float, ...] = ()
    """Under gdp: up to three epsilons below the cap, ascending, fixed when the asset is registered. A release states
    the smallest that is not passed; without any it states the cap."""


class Privacy(Settings):
    """The budget and where it is metered."""

    budget: BudgetSettings
    ledger: str | None = None
    """Path or database URL of the ledger; null: the user's data folder. PALIMPSEST_LEDGER overrides it."""


@extended("models")
class Models(Settings):
    """Where weights come from."""

    lm: str = Field(default=EMBEDDED, min_length=1)
    """Causal LM: embedded, a local folder, or a hub name (name@revision, the 40 digits of a commit)."""
    encoder: str = Field(default="embedded", min_length=1)
    """Sentence encoder: embedded, a local folder, or a hub name (name@revision)."""
    classifier: str | None = None
    """Encoder to fine-tune as a further evaluator: a local folder or a hub name (name@revision); null: none."""
    vocabulary: int | None = Field(default=None, ge=300)
    """Most tokens that a named LM keeps: those that the public text uses most, and all bytes; null: all. A small
    table saves memory and time wherever logits are computed."""
    next_token: str = Field(default="embedded", min_length=1)
    """Causal LM that learns from rows and predicts real ones (evaluator next_token): embedded, a local folder, or a hub
    name (name@revision). It should be small: it is trained `utility.seeds` times for each row of the results."""
    embedded_lm: EmbeddedLm
    prompts: Annotated[PromptWarmUp | None, _WARM_UP] = None
    """Public text behind the prompt of its nearest label, which teaches the embedded model what a prompt is; null: no
    such thing. A named model is left as it is. Where it is asked for, a copy learns, and what judges and filters reads
    the model as it was."""
    words: Named | Words | None = None
    """What texts are called in prompts, for a base model that reads words: a set, or `{text: Recipe, label: Cuisine}`.
    The prompts of `lms`, of authors of kind `base`, and of what reads the base itself then say so, unless they are
    written out; null: the label and a separator."""


class Finetune(Settings):
    """Fine-tuning `models.classifier` as an evaluator."""

    epochs: int = Field(default=3, ge=1, description="Passes over the synthetic rows.")
    batch: int = Field(default=32, ge=1, description="Rows per step.")
    learning_rate: float = Field(default=5e-5, gt=0, description="Peak learning rate.")
    freeze_last: int = Field(default=0, ge=0, description="Last transformer blocks that stay as they are.")
    max_tokens: int = Field(default=128, ge=8, description="Tokens kept of a text.")


class PublicOnly(Settings):
    """The epsilon 0 row."""

    rows: int = Field(default=1000, ge=1, description="Public rows to choose, over all labels; of public_lm to write.")


class PublicLm(Settings):
    """The epsilon 0 row that the public language model writes by itself, behind the prompt of what reads private rows.

    It is there where `dp_lm`, or `predict` or `fewshot` of the base, runs: what these have above it they learned from
    private rows.
    """

    prompt: str = BARE
    """What stands before a text; may name {label}, {description} and {separator}. Left out: the prompt of the first
    that runs."""
    ends: Ends = "eos"
    temperature: float = Field(default=1.0, gt=0, description="Divides the logits before sampling.")
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus sampling: smallest set of tokens with this probability."""
    max_tokens: Annotated[int, TEXT] = Field(ge=1, description="Longest text in tokens.")
    batch: int = Field(default=128, ge=1, description="Texts that are written side by side.")
    precision: WritesIn = "float32"
    filters: UnjudgedFilters = Filters()


class ZeroShot(Settings):
    """Texts that an author writes behind its prompt for new texts, shown no record: the first population of `embed`."""

    texts: int = Field(default=300, ge=1, description="Different texts of each label that it writes.")
    beside: bool = False
    """Public texts may stand beside them in a first population; false: they stand alone."""


@extended("utility")
class Utility(Settings):
    """Train on synthetic, test on real."""

    evaluators: Annotated[
        tuple[Literal["minilm_lr", "tfidf_lr", "finetuned", "next_token"], ...],
        by_labels(_EVALUATORS, [NEXT_TOKEN]),
    ] = Field(default=_EVALUATORS, min_length=1)
    """Classifiers; next_token, which needs no labels, is a language model that is asked for the next token."""
    seeds: int = Field(default=3, ge=3, description="Repetitions of every evaluator.")
    most_rows: int = Field(default=50_000, ge=100)
    """Rows that an evaluator learns from, and is asked about, at most; of more, so many are drawn by the seed."""
    finetune: Finetune = Finetune()
    next_token: NextToken = NextToken()
    groups: Mapping[str, str] = {}
    """Groups to compare, by name: each a regular expression, and the rows are its own whose text it matches, whatever
    the case. They are public, and say nothing about who is in the data."""

    @field_validator("groups")
    @classmethod
    def _require_searchable(cls, groups: Mapping[str, str]) -> Mapping[str, str]:
        for name, pattern in groups.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"utility.groups.{name} is no regular expression: {error}") from error
        return groups


@extended("audit")
class Audit(Settings):
    """The attacks and their controls."""

    size: Annotated[int, _AUDIT_SIZE] = Field(ge=LEAST_UNITS)
    """Expected records in the audit subset, or persons where there is a unit column: half of them never train."""
    similarity: float = Field(default=0.7, gt=0, le=1)
    """Jaccard similarity from which two texts are near-duplicates."""
    orders: tuple[int, ...] = Field(default=(3, 4, 5, 6, 7, 10, 13), min_length=1, description="n of the n-gram audit.")
    resamples: int = Field(default=1000, ge=100, description="Bootstrap and permutation resamples.")
    guesses: float = Field(default=0.2, gt=0, le=1)
    """Share of the audit records that the attacker guesses about."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5, description="Error probability of the lower bound on epsilon.")


class Compute(Settings):
    """Where stages compute, and how precisely they measure. Nothing that is charged depends on it."""

    device: str = Field(default=AUTO, pattern=NAMES)
    """auto (the first CUDA device, else the CPU), cpu, cuda, cuda:1 or the like, or mps. Another device runs nothing
    anew. PALIMPSEST_DEVICE overrides it."""
    precision: Precision = "float32"
    """In what models read texts that are only measured: the evaluators `minilm_lr` and `finetuned`, and fidelity. bf16
    is faster where the machine computes in it, and is not used elsewhere: what a fit reads and writes is in float32, or
    in that fit's own precision."""
    runner: Literal["processes", "dask"] = "processes"
    """processes: a stage works in its own. dask: it has parts of its work done by the workers of a Dask cluster, with
    the same results: the one that PALIMPSEST_DASK names, else its own on this machine. Another runner runs nothing
    anew. PALIMPSEST_SHARDS (processes, dask or dask:4) overrides it."""
    workers: int | None = Field(default=None, ge=1)
    """Workers of a stage's own cluster; null: one for each core that the stage may use."""


class Stores(Settings):
    """Where `dvc push` may take what. No stage runs again for it."""

    private: str | None = Field(default=None, pattern=NAME)
    """The one DVC remote that private files may be pushed to, as private as the data; null: none."""


class Testing(Settings):
    """For tests only."""

    noise_seed: int | None = None
    """A fixed seed of the Gaussian noise and Poisson draws; nothing made with one is private."""


class Gates(Settings):
    """Gates that a release has to pass beside its privacy."""

    accuracy: float | None = Field(default=None, ge=0, le=1)
    """Least accuracy of every released variant on dataset.public_test, by its best evaluator; null: not asked."""


class ReleaseSettings(Settings):
    """Settings of a release: the rows of some variants, with everything that says what they promise."""

    variants: tuple[str, ...] = ()
    """Variants whose rows leave, all of purpose release; [] releases nothing."""
    title: Annotated[str, _TITLE] = Field(min_length=1, max_length=200, description="Name of the released data set.")
    license: str | None = None
    """Licence of the released rows, as an SPDX identifier or a URL; null: other."""
    gates: Gates = Gates()

    @field_validator("variants")
    @classmethod
    def _require_unique(cls, variants: tuple[str, ...]) -> tuple[str, ...]:
        if twice := sorted(name for name, count in Counter(variants).items() if count > 1):
            raise ValueError(f"variants names {twice} twice")
        return variants

    @field_validator("title", "license")
    @classmethod
    def _require_one_line(cls, text: str | None) -> str | None:
        if text is not None and not text.isprintable():
            raise ValueError("write it on one line")
        return text


class Entry(Settings):
    """A model or a variant. In the file its settings stand beside its own keys, without a level between.

    Attributes:
        holds: the key with its settings.
    """

    holds: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _gather_settings(cls, written: Any, info: ValidationInfo) -> Any:
        """Return its own keys, and all others as its settings, where the file is read."""
        if not isinstance(info.context, Stated) or not isinstance(written, Mapping):
            return written
        own = {key: value for key, value in written.items() if key in cls.model_fields and key != cls.holds}
        return own | {cls.holds: {key: value for key, value in written.items() if key not in own}}


class Fitted(Entry):
    """Settings of every model that is fitted to private rows."""

    purpose: Annotated[Literal["release", "reference"], _PURPOSE]
    """reference: stays in the private zone for ever."""
    epsilon: float = Field(gt=0, description="Target epsilon of the model and all it is built on; .inf adds no noise.")

    @model_validator(mode="after")
    def _infinity_is_reference(self) -> "Fitted":
        if math.isinf(self.epsilon) and self.purpose != "reference":
            raise ValueError("epsilon .inf is not private: mark it `purpose: reference`")
        return self


class LanguageModel(Fitted):
    """A language model of `dp_lm`: one charge, whatever is drawn from it."""

    holds = "train"
    train: DpLmTrain


class DiscriminatorSettings(Fitted):
    """A discriminator that is trained behind a fitted language model; its epsilon counts both."""

    holds = "train"
    train: DiscriminatorTrain


class DpLmVariant(Entry):
    """One row of the results: a way of drawing from a fitted model, free."""

    holds = "generate"
    method: Literal["dp_lm"] = Field(description="How the rows are made.")
    variant: Annotated[
        Literal["plain", "filter", "pplm", "multitask", "fudge", "fudge_state"], by_labels("multitask", "plain")
    ]
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
    def settings(self) -> DpLmGenerate:
        """The settings of its method."""
        return self.generate


class ChargedVariant(Fitted):
    """A variant that is charged by itself; where all values are listed, its settings stand under its method's name."""

    holds = "settings"
    method: str = Field(description="How the rows are made.")
    settings: SerializeAsAny[Settings]
    """The settings of its method, an instance of `Method.settings`."""

    @model_validator(mode="before")
    @classmethod
    def _name_settings(cls, written: Any, info: ValidationInfo) -> Any:
        if info.context is not None or not isinstance(written, Mapping):
            return written
        return {cls.holds if key == written.get("method") else key: value for key, value in written.items()}

    @field_validator("settings", mode="plain")
    @classmethod
    def _of_its_method(cls, written: Any, info: ValidationInfo) -> Settings:
        if (name := info.data.get("method")) is None:
            raise ValueError("their method is not known")
        return method(name).settings.model_validate(written, context=info.context)

    @model_validator(mode="after")
    def _fits_its_method(self) -> "ChargedVariant":
        problem = method(self.method).problem(self.settings, self.purpose, self.epsilon)
        if problem:
            raise ValueError(problem)
        return self

    def plain_items(self) -> Iterator[tuple[str, Any]]:
        """Yield each key and its value, as all values are listed."""
        return ((self.method if key == self.holds else key, value) for key, value in super().plain_items())


def _kind_of_variant(written: Any) -> str:
    found = written.get("method") if isinstance(written, Mapping) else getattr(written, "method", None)
    return "dp_lm" if found == "dp_lm" else "charged"


Variant = Annotated[
    Annotated[DpLmVariant, Tag("dp_lm")] | Annotated[ChargedVariant, Tag("charged")], Discriminator(_kind_of_variant)
]


@with_keys({known.run: tuple[str, ...] if known.source == "none" else Mapping[str, str] for known in METHODS})
class _Makes(Settings):
    """Models to fit and rows to write, under the stages that do it: their names are used elsewhere."""

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
    tabulate: Mapping[str, str]  # each with the variant that it puts fields beside
    choose: Mapping[str, tuple[str, ...]]  # each with the variants that it chooses from
    phrases: tuple[str, ...]


@extended(RUN)
class RunSettings(_Makes):
    """Names that each stage runs for: keys of `lms`, `discriminators` and `variants`."""

    evaluate: tuple[str, ...]  # every variant above, in the order of the pages
    audit: tuple[str, ...]
    zero_shot: Mapping[str, str]  # each with its author
    write_public: Mapping[str, str] = {}  # the public file, with its author


class Swept(Settings):
    """A variant that `palimpsest sweep` made."""

    of: str = Field(description="The variant that it was made from.")
    keys: tuple[str, ...] = Field(min_length=1, description="What was varied.")


def stated(data: Dataset, lm: object) -> Stated:
    """Return what defaults follow from, for this data set and this language model."""
    return Stated(data.task, data.asset, bool(data.labels), data.units, data.text_tokens, embedded=lm == EMBEDDED)


class Params(Settings):
    """params.yaml."""

    version: str = Field(description="Version of palimpsest that the workspace was made for.")
    preset: str | None = None
    """The preset that `init` wrote, if one. It sets nothing: `plan` says by it what the paper's own accounting leaves
    out."""
    seed: int = Field(default=7, ge=0)
    """Draws what is made of public texts and noisy answers, and what audits pick and shuffle; never noise, batches or
    keys."""
    dataset: Dataset
    world: str | None = Field(
        default=None,
        pattern="^[a-z]+$",  # a name and no path: guards for real people are off where a world is set
    )
    """An invented world, demo or another that a clone made (docs/world.md); null for your own data."""
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
    public_lm: Annotated[PublicLm | None, _ALONE] = None
    utility: Utility = Utility()
    audit: Audit
    release: ReleaseSettings
    compute: Compute = Compute()
    stores: Stores = Stores()
    sweeps: Mapping[str, Swept] = {}
    """Variants that `palimpsest sweep` made, and from what. It sets nothing: the privacy statement says by it that one
    of several was chosen."""
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
    def stated(self) -> Stated:
        """The statements that defaults follow from."""
        return stated(self.dataset, self.models.lm)

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
            fields=dict(data.fields),
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
        return UNTOUCHED if self.learns_prompts and self.models.lm != EMBEDDED else BASE_LM

    @property
    def writes_alone(self) -> bool:
        """Whether the public language model writes a row of its own, by a prompt that private rows are read with.

        A prompt for a chat model gives an instruction and is not a text to continue.
        """
        readers = (self.variants[name] for name, source in self.run.private_predict.items() if source == "base")
        asked = (getattr(row.settings, "prompt", None) for row in readers)
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
        warnings += [said for keys in load_extensions() for said in keys.warnings(self)]
        if self.testing.noise_seed is not None:
            warnings.append("testing.noise_seed is set: NOTHING made by this run is private.")
        return warnings
