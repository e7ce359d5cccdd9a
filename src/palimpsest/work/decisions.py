"""The params.yaml that `palimpsest init` writes: the options that it was given, and no default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from palimpsest import __version__
from palimpsest.models.sources import weights_of
from palimpsest.params.preset import Facts, Preset, epsilon_suffix, presets
from palimpsest.params.schema import USUAL_LENGTH
from palimpsest.params.text import to_yaml
from palimpsest.records.fields import Declared
from palimpsest.records.vouched import EMBEDDED

_HEAD = """\
# What a person decides. `palimpsest params --keys` describes every key, `palimpsest params --all` prints all values,
# `palimpsest plan` what they cost. A setting is changed by writing it beside its variant or model: `rows: 2000`.
"""
_VARIANTS = """\
# Rows of the results, each named once; what runs follows. Others to add (embed3 with `decoders: {small: {}}`):
#   select1: {method: select, epsilon: 1}                  dp3: {method: dp_lm}  # with lms: {dp3: {epsilon: 3%s}}
#   predict3: {method: predict, epsilon: 3, from: base}    embed3: {method: embed, epsilon: 3, from: small}
#   evolve3: {method: evolve, epsilon: 3, from: base}
#   inf: {method: dp_lm}  # with lms: inf: {epsilon: .inf}, a reference without noise that stays in the private zone
"""
_WORDED = """\
# What prompts call a text and its label: texts, reviews, news, questions, tweets, tickets, notes, json, or words of
# your own, {text: Recipe, label: Cuisine}.
"""
_RELEASE = """\
# What leaves, into release/: name variants when they may, after `palimpsest keys new` has made the key that signs it.
"""
_PUBLISHED = """\
# What a person decides, as %s has it: in a clone, `python -m tools.reference presets` says of each value where.
# `palimpsest params --keys` describes every key, `palimpsest params --all` prints all values, `palimpsest plan` what
# they cost.
"""
_ADAPTERS, _LARGE = {"lora_rank": 16}, 100_000_000  # for a named model of more weights
_TEXTS = 0.9  # of epsilon, where fields take the rest: a fifth of rho
_WRITER = "writer"  # the author of public text, in params.yaml
_BASE = "base"  # an author without settings of its own
_BEGINS = {"classify": "select", "span": "predict"}  # the method to begin with


@dataclass(frozen=True)
class DataSource:
    """The options of `init` about the data: tables by path or address. Nothing in it is read out of the data."""

    data: Path | str
    text: str
    public: Path | str | None
    n_public: int
    asset: str
    label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    test: Path | str | None = None
    public_test: Path | str | None = None
    public_labels: bool = False
    public_license: str | None = None
    unit: str | None = None
    max_rows: int = 1
    persons: int | None = None
    max_length: int | None = None
    text_tokens: int | None = None
    epsilon: float = 3.0
    budget: float = 10.0
    delta: float | None = None
    filter: str = "gdp"
    milestones: tuple[float, ...] | None = None  # None: proposed, from the budget and what the first plan costs
    lm: str = "embedded"
    words: str | None = None
    preset: str = "modern"
    chosen: str | None = None
    json_schema: Mapping[str, Any] | None = None
    wanted: str | None = None
    bad_rows: str = "stop"
    language: str = "en"
    rows: int | None = None
    fields: Mapping[str, Declared] = field(default_factory=dict)
    author: Mapping[str, Any] | None = None  # who writes public text where there is none
    about: str | None = None

    @property
    def method(self) -> str:
        """The method of the first variant's rows: as wanted, else the simplest one that can do the task."""
        return self.wanted or _BEGINS.get(self.task, "dp_lm")

    @property
    def writer(self) -> Mapping[str, Any] | None:
        """Who writes public text where there is none: as given, else a named base model."""
        named = {"kind": _BASE} if self.lm != EMBEDDED else None
        return None if self.public is not None else self.author or named

    @property
    def task(self) -> str:
        """The chosen task; else classify where there is a label, and text where there is none."""
        return self.chosen or ("text" if self.label is None else "classify")

    @property
    def worded(self) -> bool:
        """Whether prompts are in words: those of a named language model, but not where a paper has another form."""
        return self.lm != EMBEDDED and (self.published is None or self.published.worded)

    @property
    def published(self) -> Preset | None:
        """The settings of a paper that were asked for."""
        return presets().get(self.preset)

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keys of a record that is a JSON object."""
        return None if self.json_schema is None else tuple(self.json_schema["properties"])

    @property
    def row(self) -> str:
        """The name of the first variant: dp3, dp0_5, predict3."""
        return self.method.removesuffix("_lm") + epsilon_suffix(self.text_epsilon)

    @property
    def text_epsilon(self) -> float:
        """Epsilon of the first variant's texts: where `tabulate` puts fields beside them, that takes the rest."""
        return float(f"{_TEXTS * self.epsilon:.2g}") if self.tabulated else self.epsilon

    @property
    def tabulated(self) -> bool:
        """Whether fields are put beside the first variant's texts; `dp_lm` writes under them."""
        return bool(self.fields) and self.method != "dp_lm"

    @property
    def facts(self) -> Facts:
        """The facts of it that a preset is given."""
        return Facts(
            self.task, len(self.labels), self.persons or self.n_public, self.epsilon, self.delta,
            self.lm != EMBEDDED, self.words, self.test is not None,
        )  # fmt: skip


def usual_epsilon(preset: str) -> float:
    """Return the default epsilon of each row."""
    known = presets().get(preset)
    return known.epsilon if known else DataSource.epsilon


def params_text(source: DataSource) -> str:
    """Return the params.yaml of a workspace for these data: what was given, and one variant or all of a preset."""
    sections = _sections(source) if source.published is None else _preset_sections(source, source.published)
    return "\n".join(f"{words}{to_yaml(section)}" for words, section in sections)


def _sections(source: DataSource) -> Iterator[tuple[str, dict[str, Any]]]:
    yield _HEAD, {"version": __version__, "dataset": _dataset(source)}
    yield "", _budget(source)
    yield from _public_models(source)
    yield from (("", {key: entries}) for key, entries in (_models(source) | _authors(source)).items())
    adapters = "".join(f", {key}: {value}" for key, value in _adapters(source).items())
    yield _VARIANTS % adapters, {"variants": {source.row: _variant(source), **_tabulated(source)}}
    yield _RELEASE, _release(source)


def _preset_sections(source: DataSource, preset: Preset) -> Iterator[tuple[str, dict[str, Any]]]:
    body = preset.settings(source.facts)
    body |= {key: {**body.get(key, {}), **entries} for key, entries in _authors(source).items()}
    said = {"version": __version__, "preset": preset.name, "dataset": _dataset(source) | body.pop("dataset", {})}
    yield _PUBLISHED % preset.name, said
    yield "", _budget(source, body.pop("privacy", {}).get("budget", {}))
    yield from _public_models(source)
    yield from (("", {key: section}) for key, section in body.items())
    yield _RELEASE, _release(source)


def _budget(source: DataSource, published: Mapping[str, float] = MappingProxyType({})) -> dict[str, Any]:
    delta = {} if source.delta is None else {"delta": source.delta}
    stated = {"milestones": list(source.milestones)} if source.milestones else {}
    budget = {"epsilon": source.budget, **published, **delta, "filter": source.filter, **stated}
    return {"privacy": {"budget": budget}}


def _release(source: DataSource) -> dict[str, Any]:
    return {"release": {"variants": [], "title": f"Synthetic rows of {source.asset}", "license": None}}


def _public_models(source: DataSource) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the section of public models; a named language model is left as it is, and is prompted in words."""
    usual = "json" if source.task == "json" else "texts"
    words = {"words": source.words or usual} if source.worded else {}
    folder = Path(source.lm).expanduser()
    lm = str(folder.resolve()) if folder.is_dir() else source.lm
    yield _WORDED if words else "", {"models": {"lm": lm, "encoder": "embedded", **words}}


def _dataset(source: DataSource) -> dict[str, Any]:
    """Return the section of the data set without its defaults, except those that a reader looks for."""
    unit = {"column": source.unit, "max_rows": source.max_rows, "persons": source.persons}
    said = {
        "asset": source.asset,
        "task": source.task,
        "private": _resolve_path(source.data),
        "public": _resolve_path(source.public),
        "written": _written(source),
        "text": source.text,
        "n_public": source.n_public,
        "max_length": source.max_length or USUAL_LENGTH,
        "text_tokens": source.text_tokens,
        "language": None if source.language == DataSource.language else source.language,
        "bad_rows": None if source.bad_rows == "stop" else source.bad_rows,
        "test": _resolve_path(source.test),
        "public_test": _resolve_path(source.public_test),
        "public_license": source.public_license,
        "public_labels": source.public_labels or None,
        "label": source.label,
        "labels": dict(source.labels) or None,
        "json_schema": source.json_schema,
        "fields": {name: _plain(declared) for name, declared in source.fields.items()} or None,
        "unit": None if source.unit is None else unit,
    }
    return {key: value for key, value in said.items() if value is not None}


def _models(source: DataSource) -> dict[str, dict[str, Any]]:
    if source.method == "dp_lm":
        return {"lms": {source.row: {"epsilon": source.text_epsilon, **_adapters(source)}}}
    if source.method == "predict" and source.lm == EMBEDDED:
        return {"taught": {"similar": {}}}  # public pairs teach a public model to go on with a similar text
    if source.method == "embed":
        return {"decoders": {"small": {}}}
    return {}


def _authors(source: DataSource) -> dict[str, dict[str, Any]]:
    """Return who writes the public text; the base model needs no entry."""
    talks = source.writer is not None and source.writer != {"kind": _BASE}
    return {"authors": {_WRITER: dict(source.writer or {})}} if talks else {}


def _written(source: DataSource) -> dict[str, Any] | None:
    if source.writer is None:
        return None
    about = {} if source.about is None else {"about": source.about}
    return {"author": _WRITER if _authors(source) else _BASE, **about}


def _adapters(source: DataSource) -> dict[str, Any]:
    """Return adapters for a large model: noise on so few weights is small, and so is the memory for their gradients."""
    return dict(_ADAPTERS) if source.worded and weights_of(source.lm) > _LARGE else {}


def _variant(source: DataSource) -> dict[str, Any]:
    rows = {} if source.rows is None else {"rows": source.rows}
    if source.method == "dp_lm":
        kind = "multitask" if source.labels else "plain"
        return {"method": "dp_lm", "from": source.row, "variant": kind} | rows
    own = {"method": source.method, "epsilon": source.text_epsilon} | rows
    reader = "taught/similar" if source.lm == EMBEDDED else "base"  # a named model reads words
    author = _WRITER if _authors(source) else _BASE
    drawn = {"predict": reader, "evolve": author, "embed": "small"}.get(source.method)
    return own if drawn is None else own | {"from": drawn}


def _tabulated(source: DataSource) -> dict[str, dict[str, Any]]:
    """Return the variant with fields beside the texts of the first; its epsilon counts both."""
    if not source.tabulated:
        return {}
    own = {"method": "tabulate", "epsilon": source.epsilon, "from": source.row}
    return {f"tabulate{epsilon_suffix(source.epsilon)}": own}


def _plain(declared: Declared) -> str | list[str]:
    return declared if isinstance(declared, str) else list(declared)


def _resolve_path(path: Path | str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())
