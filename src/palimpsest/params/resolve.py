"""Works out every value from what a person wrote: what runs, prompts, and defaults that follow from the data."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.errors import ParamsError
from palimpsest.extensions import require_apart
from palimpsest.methods.dp_lm.settings import TUNED, DpLmTrain
from palimpsest.methods.registry import method
from palimpsest.methods.shared.method import Family, Method
from palimpsest.methods.shared.tools import Reads
from palimpsest.models.chat.settings import is_english, system_message
from palimpsest.models.words import BARE, Words, words_of
from palimpsest.params.extension import load_extensions
from palimpsest.params.file import File, Sourced
from palimpsest.params.schema import LEAST_UNITS, Dataset, DiscriminatorSettings, LanguageModel, Utility, Variant
from palimpsest.records.structured import form_of
from palimpsest.records.vouched import EMBEDDED

ANY = "*"  # stands for a name of the file's own
BLIND = [NEXT_TOKEN]  # the evaluators of data without labels
_LARGEST_BATCH, _SMALLEST_BATCH = 10, 4  # powers of two
_LARGEST_AUDIT = 2000
_MOST_CONTEXTS, _FEWEST_CONTEXTS = 32, 8

Path = tuple[str, ...]
_CHAIN = ["length", "personal_data", "duplicates"]
_REFUSED = ["personal_data"]
_SHORT, _LONG = 64, 400  # tokens of a text that are kept by default, and at most
_WHOLE_CONTEXT = 512  # positions of the embedded language model at most
RECORD = 200  # tokens that hold a whole record of JSON
_AS_LMS = ("epochs", "learning_rate", "warmup", "clipping_norm", "micro_batch")
_TWELFTH = "about a twelfth of the units of privacy: a power of two from 16 to 1,024"
_WARM_UP = "the section's own defaults where `models.lm` is embedded, else `null`"
_ALONE = "the section's own defaults where `models.lm` names one, else `null`"
_RATE = "`0.002` where `models.lm` is embedded, else `null`"
_EXAMPLES = 2  # public texts that an author is shown
BASE = "base"  # the public language model as it is, as a reader and as an author
_AUTHORS = (BASE, "corpus")  # authors that need no settings, and so no entry
_TAUGHT = "taught/"
_ENTRIES = ("lms", "discriminators", "variants", "taught", "authors", "decoders", "zero_shot")
_WORKED_OUT = {*_ENTRIES, "runs"}


@dataclass(frozen=True)
class Derived:
    """A default that depends on the data set.

    Attributes:
        path: the key, with `ANY` for a name of the file's own.
        words: the default, for the reference.
        value: the default, of the data set.
        tag: the method or the kind that an entry under that name must be of, or what it must read; None: any. One with
            a tag stands before one without.
        embedded: whether it is only for the embedded language model, or only for a named one; for the other the
            default is null. None: for both.
    """

    path: Path
    words: str
    value: Callable[[Dataset], Any]
    tag: str | None = None
    embedded: bool | None = None

    def of(self, data: Dataset, lm: str) -> Any:
        """The default for these data and this language model."""
        return self.value(data) if self.embedded in (None, lm == EMBEDDED) else None


def units(data: Dataset) -> int:
    """The declared number of units of privacy."""
    return data.n_public if data.unit.persons is None else data.unit.persons


def _batch(data: Dataset) -> int:
    """Return the default batch: a power of two near a twelfth of the units, because large batches suit DP."""
    power = (units(data) // 12).bit_length() - 1
    return int(min(units(data), 2 ** min(_LARGEST_BATCH, max(_SMALLEST_BATCH, power))))


def _audit_size(data: Dataset) -> int:
    return min(max(units(data) // 5, LEAST_UNITS), _LARGEST_AUDIT)


def _contexts(data: Dataset) -> int:
    return min(max(units(data) // 64, _FEWEST_CONTEXTS), _MOST_CONTEXTS)


Default = tuple[str, Callable[[Dataset], Any]]  # the words, the value


def _default_by_labels(there: Any, other: Any) -> Default:
    return f"{_cell(there)} where there are labels, else {_cell(other)}", lambda data: there if data.labels else other


def default_by_json(own: Any, other: Any) -> Default:
    """Return one default for records of JSON and another for texts."""
    return f"{_cell(other)}; task json: {_cell(own)}", lambda data: own if data.task == "json" else other


def default_chain(*without: str) -> Default:
    """Return all filters of texts; for tasks whose records are no texts, only those that a release would fail by."""
    words = f"{_cell(_CHAIN)}; task {' or '.join(without)}: {_cell(_REFUSED)}"
    return words, lambda data: list(_REFUSED if data.task in without else _CHAIN)


def _cell(value: Any) -> str:
    return f"`{json.dumps(value)}`"


def _text_tokens(data: Dataset) -> int:
    """Return the longest text in tokens: as long as usual, or as the data set says."""
    return RECORD if data.task == "json" else min(max(_SHORT, data.text_tokens or 0), _LONG)


def _context(data: Dataset) -> int:
    """Return the context of the embedded model: a power of two that has room for a prompt too."""
    room = _text_tokens(data) + _SHORT
    return _WHOLE_CONTEXT if data.task == "json" else int(min(_WHOLE_CONTEXT, max(128, 1 << (room - 1).bit_length())))


_TEXT: Default = (f"{_cell(64)}, or `dataset.text_tokens` up to 400; task json: {_cell(RECORD)}", _text_tokens)
_CONTEXT: Default = (f"{_cell(128)}, more for longer `dataset.text_tokens`; task json: {_cell(512)}", _context)
_WITH_LABELS: Default = (
    "the section's own defaults where there are labels, else `null`",
    lambda data: {} if data.labels else None,
)
_TITLE: Default = ('`"Synthetic rows of "` and `dataset.asset`', lambda data: f"Synthetic rows of {data.asset}")
_PREDICT: Mapping[Path, Default] = {
    ("batch_size",): ("a 64th of the units of privacy, from 8 to 32", _contexts),
    ("tokens",): default_by_json(300, 100),
    ("max_tokens",): default_by_json(RECORD, 40),
    ("typical_tokens",): default_by_json(150, 20),
    ("keep_unfinished",): default_by_json(False, True),
    ("class_means",): _WITH_LABELS,
    ("prompt", "text_tokens"): default_by_json(RECORD, 40),
    ("filters", "chain"): default_chain("json", "span"),
}


def _make_constant(value: Any) -> Callable[[Dataset], Any]:
    return lambda _: value


def _training_defaults() -> Iterator[Derived]:
    """Yield the defaults of a discriminator that is a language model of its own: it trains as one."""
    for key in _AS_LMS:
        usual = DpLmTrain.model_fields[key].default
        yield Derived(("discriminators", ANY, "train", key), _cell(usual), _make_constant(usual), TUNED)
    yield Derived(("discriminators", ANY, "train", "batch"), _TWELFTH, _batch, TUNED)


_ALL = (
    Derived(("models", "prompts"), _WARM_UP, lambda _: {}, embedded=True),
    Derived(("models", "prompts", "learning_rate"), _RATE, lambda _: 0.002, embedded=True),
    Derived(("taught", ANY, "learning_rate"), _RATE, lambda _: 0.002, embedded=True),
    Derived(("models", "embedded_lm", "context"), *_CONTEXT),
    Derived(("taught", ANY, "max_tokens"), *default_by_json(RECORD, 40)),
    Derived(("authors", ANY, "start"), *_default_by_labels("prompt", "corpus"), "base"),
    Derived(("authors", ANY, "max_tokens"), *_TEXT, "base"),
    Derived(("lms", ANY, "train", "batch"), _TWELFTH, _batch),
    Derived(("lms", ANY, "train", "max_tokens"), *_TEXT),
    Derived(("lms", ANY, "train", "discriminator_weight"), *_default_by_labels(1.0, 0.0)),
    *_training_defaults(),
    Derived(("discriminators", ANY, "train", "batch"), "the number of units of privacy", units),
    Derived(("variants", ANY, "variant"), *_default_by_labels("multitask", "plain"), "dp_lm"),
    Derived(("variants", ANY, "generate", "max_tokens"), *_TEXT, "dp_lm"),
    *(Derived(("variants", ANY, "predict", *path), *default) for path, default in _PREDICT.items()),
    Derived(("variants", ANY, "evolve", "class_means"), *_WITH_LABELS),
    Derived(("variants", ANY, "evolve", "filters", "chain"), *default_chain("json")),
    Derived(("variants", ANY, "embed", "class_means"), *_WITH_LABELS),
    Derived(("public_lm",), _ALONE, lambda _: {}, embedded=False),
    Derived(("public_lm", "max_tokens"), *_TEXT),
    Derived(("utility", "evaluators"), *_default_by_labels([*Utility().evaluators], BLIND)),
    Derived(("audit", "size"), "a fifth of the units of privacy, from 20 to 2,000", _audit_size),
    Derived(("release", "title"), *_TITLE),
)
_BROUGHT = (item for keys in load_extensions() for item in keys.defaults())
DERIVED: Mapping[tuple[Path, str | None], Derived] = {(item.path, item.tag): item for item in (*_ALL, *_BROUGHT)}


def find_derived(path: Path, tag: str | None = None) -> Derived | None:
    """The default of a key that depends on the data set, if it does; `tag` is the method or kind of its entry."""
    return DERIVED.get((path, tag)) or DERIVED.get((path, None))


def put_into_words(body: dict[str, Any], labelled: bool, form: str | None = None) -> None:
    """Fill in the prompts of models, base authors, variants that read the base model as it is, and what packages bring.

    `form` is the form of records of JSON, if there are such records.
    """
    words = _parse_words(body.get("models", {}).get("words"))
    if words is None:
        return
    words = words.model_copy(update={"form": words.form or form})
    for entry in body["lms"].values():
        _fill(entry.get("train"), {"prompt": words.prompt(labelled)})
    for entry in body["authors"].values():
        _fill(entry if entry.get("kind") == "base" else None, _authors(words, labelled))
    for section, key, prompt in ((*at, said) for keys in load_extensions() for at, said in keys.words(words).items()):
        _fill(body.get(section, {}).get(key), prompt)
    for name in body["run"]["steer"]:
        _fill(body["variants"][name].get("steer"), {"prompt": words.prompt(labelled), "ends": "line"})
    for name in body["run"]["phrases"]:
        asked = {"about": words.prompt_about(labelled), "plain": words.prompt(labelled), "ends": "line"}
        _fill(body["variants"][name]["phrases"].setdefault("prompt", {}), asked)
    for name, source in body["run"]["private_predict"].items():
        row = body["variants"][name]
        settings = row.get(row["method"])
        if source == "base" and isinstance(settings, dict):
            _fill(settings.setdefault("prompt", {}), method(row["method"]).worded(words, labelled))


def fill_public_prompt(body: dict[str, Any]) -> None:
    """Fill in the prompt of `public_lm`: the first one given to the base model where private rows are read."""
    for prompt in _public_prompts(body):
        _fill(body["public_lm"], {"prompt": prompt, "ends": "eos" if prompt == BARE else "line"})


def _public_prompts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the prompts without a private text that models and variants give to the base as it is."""
    run, variants = body["run"], body["variants"]
    yield from (body["lms"][name]["train"].get("prompt", BARE) for name in run["dp_train"])
    yield from (variants[name]["steer"].get("prompt", BARE) for name in run["steer"])
    for said in (variants[name]["phrases"].get("prompt", {}) for name in run["phrases"]):
        yield said.get("plain", BARE) if isinstance(said, Mapping) else BARE
    for row in (variants[name] for name, source in run["private_predict"].items() if source == "base"):
        said = row[row["method"]].get("prompt")
        if isinstance(said, Mapping) and not said.get("chat"):
            yield said.get("public") or said.get("head") or BARE


def _parse_words(said: Any) -> Words | None:
    """Return the words; None where there are none, or where the schema will report what is wrong with them."""
    try:
        return None if said is None else Words(**said) if isinstance(said, Mapping) else words_of(said)
    except (KeyError, TypeError, ValidationError):
        return None


def _authors(words: Words, labelled: bool) -> dict[str, Any]:
    return {
        "start": "prompt",
        "prompt": words.prompt(labelled),
        "paraphrase": words.paraphrase(labelled),
        "blanks": words.blanks(labelled),
        "examples": _EXAMPLES,
        "ends": "line",
    }


def _fill(section: Any, defaults: Mapping[str, Any]) -> None:
    """Fill in what is missing; a prompt for a chat model stays as it is written."""
    if isinstance(section, dict) and not section.get("chat"):
        for key, value in defaults.items():
            section.setdefault(key, value)


Parts = tuple[int | str, ...]  # of a key: sections, names of the file's own, and places in a list


def resolve(file: File) -> dict[str, Any]:
    """Return everything that `Params` is made of, except defaults that depend on nothing: those are its own.

    Raises:
        ParamsError: a variant's method or source is unknown.
        ValidationError: the section `dataset` is wrong.
    """
    data = Dataset.model_validate(file.dataset)
    body = spread(file)
    body["run"] = _run_section(file)
    for name in (*body["run"]["private_evolve"].values(), *body["run"]["zero_shot"].values()):
        if name in _AUTHORS:
            body["authors"].setdefault(name, {"kind": name})
    put_into_words(body, bool(data.labels), None if data.json_schema is None else form_of(data.json_schema))
    lm = file.models.get("lm", EMBEDDED)
    for item in DERIVED.values():
        for section in _places(body, item):
            section.setdefault(item.path[-1], item.of(data, lm))
    fill_public_prompt(body)
    for author in body["authors"].values() if not is_english(data.language) else ():
        if author.get("kind") in ("local", "endpoint"):
            _fill(author.setdefault("prompts", {}), {"system": system_message(data.language)})
    return body


def spread(file: File) -> dict[str, Any]:
    """Return what is written, placed as in `Params`: the settings of models and variants in sections of their own."""
    body: dict[str, Any] = {key: _copy(getattr(file, key)) for key in file.model_fields_set - _WORKED_OUT}
    body["lms"] = {name: _split_settings(entry.written, LanguageModel) for name, entry in file.lms.items()}
    body["discriminators"] = {
        name: _split_settings(row.written, DiscriminatorSettings) for name, row in file.discriminators.items()
    }
    body["variants"] = {
        name: _split_settings(row.written, VARIANTS.get(row.method)) for name, row in file.variants.items()
    }
    for key in ("taught", "authors", "decoders", "zero_shot"):
        body[key] = {name: _copy(entry.written) for name, entry in getattr(file, key).items()}
    return body


def settings_of(kind: type[BaseModel]) -> str:
    """Return the section of a model or a variant that holds its settings; the file leaves that level out."""
    annotations = ((name, field.annotation) for name, field in kind.model_fields.items())
    return next(name for name, found in annotations if isinstance(found, type) and issubclass(found, BaseModel))


VARIANTS: Mapping[str, type[BaseModel]] = {
    get_args(kind.model_fields["method"].annotation)[0]: kind for kind in get_args(get_args(Variant)[0])
}
WAYS: Mapping[str, Method] = {name: method(name) for name in VARIANTS}  # in which stage and from what a variant is made


class Origin(NamedTuple):
    """The allowed sources of variants.

    Attributes:
        words: for the reference.
        known: takes a file and the names of its variants that run; returns what such a `from` may name.
    """

    words: str
    known: Callable[[File, Collection[str]], Collection[str]]


def _list_sources(file: File, names: Collection[str]) -> list[str]:
    chooses = {Reads.SOURCE, Reads.SOURCES}
    return [name for name in names if not WAYS[file.variants[name].method].reads & chooses]


def _list_choices(file: File, names: Collection[str]) -> list[str]:
    return [name for name in names if Reads.SOURCES not in WAYS[file.variants[name].method].reads]


# By what a method reads.
_ORIGINS = {
    Reads.FITTED: Origin("a key of `lms` or `discriminators`", lambda file, _: [*file.lms, *file.discriminators]),
    Reads.READER: Origin(
        "base, the public language model as it is, or taught/<name>",
        lambda file, _: [BASE, *(f"{_TAUGHT}{name}" for name in file.taught)],
    ),
    Reads.AUTHOR: Origin(
        "a key of `authors`, or base or corpus, which need none", lambda file, _: {*file.authors, *_AUTHORS}
    ),
    Reads.DECODER: Origin("a key of `decoders`", lambda file, _: file.decoders),
    Reads.SOURCE: Origin("another variant", _list_sources),
    Reads.SOURCES: Origin("a list of other variants", _list_choices),
}


def _origin(way: Method) -> Origin | None:
    """Return what variants of a method may be drawn from; None where they take no `from`."""
    if way.family is Family.TRAINS:  # it reads the base; its variants are drawn from what it fitted
        return _ORIGINS[Reads.FITTED]
    return next((origin for what, origin in _ORIGINS.items() if what in way.reads), None)


ORIGINS: Mapping[str, Origin] = {name: origin for name, way in WAYS.items() if (origin := _origin(way))}
SECTIONS: Mapping[str, Collection[str]] = {
    "lms": {settings_of(LanguageModel)},
    "discriminators": {settings_of(DiscriminatorSettings)},
    "variants": {settings_of(kind) for kind in VARIANTS.values()},
}


def to_file_key(parts: Parts) -> Parts:
    """Return a key of `Params` as the file has it: without the section of an entry's settings."""
    if len(parts) > 2 and parts[2] in SECTIONS.get(str(parts[0]), ()):
        return parts[:2] + parts[3:]
    return parts


def _split_settings(written: Mapping[str, Any], kind: type[BaseModel] | None) -> dict[str, Any]:
    """Return an entry's own keys, its purpose included, and its settings in their section."""
    if kind is None:
        return dict(written)
    section = settings_of(kind)
    own = {key: value for key, value in written.items() if key in kind.model_fields and key != section}
    if "purpose" in kind.model_fields:
        own.setdefault("purpose", "reference" if own.get("epsilon") == math.inf else "release")
    return own | {section: _copy({key: value for key, value in written.items() if key not in own})}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list | tuple) else value


def _places(body: dict[str, Any], item: Derived) -> Iterator[dict[str, Any]]:
    """Yield the sections that have the key of this default: made where left out, skipped where null."""
    found = [body]
    for number, name in enumerate(item.path[:-1]):
        if name == ANY:
            found = [entry for section in found for entry in section.values() if _has_tag(entry, item.tag)]
        elif number and item.path[number - 1] == ANY:  # the settings of an entry: another method's has none
            found = [section[name] for section in found if name in section]
        else:
            found = [section.setdefault(name, {}) for section in found]
        found = [section for section in found if isinstance(section, dict)]
    yield from found


def _has_tag(entry: Any, tag: str | None) -> bool:
    if tag is None or not isinstance(entry, dict):
        return tag is None
    return tag in (entry.get("method"), entry.get("kind"), (entry.get("train") or {}).get("reads"))


def _run_section(file: File) -> dict[str, Any]:
    """Return the section `run`: every variant where its method runs, and the models that these are drawn from."""
    runs, rows = file.runs, file.variants
    _require_known("runs.evaluate", runs.evaluate or (), rows)
    names = list(rows) if runs.evaluate is None else list(runs.evaluate)
    for name in rows:
        if rows[name].method not in WAYS:
            raise ParamsError(
                f"variants.{name}.method is {rows[name].method!r}, which no installed package brings.",
                f"Allowed here: {', '.join(sorted(WAYS))}. With its package installed again nothing is lost.",
            )
    drawn = {name: _source(file, name, names) for name in names}
    run: dict[str, Any] = {way.run: [] if way.source == "none" else {} for way in WAYS.values()}
    for name, source in drawn.items():
        if source is None:
            run[WAYS[rows[name].method].run].append(name)
        else:
            run[WAYS[rows[name].method].run][name] = source
    _require_known("runs.fit", runs.fit, [*file.lms, *file.discriminators])
    models = {*run["dp_lm"].values(), *runs.fit}
    judges = {name: _language_model_of(file, name) for name in file.discriminators if name in models}
    fitted = models | set(judges.values()) | {name for keys in load_extensions() for name in keys.fits(runs)}
    trained = [name for name in file.lms if name in fitted]
    read, written_by = (
        {str(source) for name, source in drawn.items() if what in WAYS[rows[name].method].reads}
        for what in (Reads.READER, Reads.DECODER)
    )
    starts = {rows[name].written.get("zero_shot") for name in names if rows[name].method == "embed"}
    run |= {
        "dp_train": trained,
        "discriminator": judges,
        "teach_similar": [name for name in file.taught if f"{_TAUGHT}{name}" in read],
        "decoder_pretrain": [name for name in file.decoders if name in written_by],
        "zero_shot": {name: _writer(file, name) for name in file.zero_shot if name in starts},
        "evaluate": names,
        "audit": _choose_or_default(runs.audit, names),
    }
    added = [keys.run(runs, run) for keys in load_extensions()]
    require_apart("an entry of the section run,", [*run, *(key for each in added for key in each)])
    return run | {key: names for each in added for key, names in each.items()}


def _source(file: File, name: str, names: Collection[str]) -> str | list[str] | None:
    """Return what a variant is drawn from, if anything; it has to be in the file, and of the kind its method reads."""
    row = file.variants[name]
    several = WAYS[row.method].source == "several"
    if several != isinstance(row.source, tuple) and (several or row.source is not None):
        raise ParamsError(
            f"variants.{name}.from is {'no list' if several else 'a list'}.",
            "Name two or more variants in brackets." if several else f"Method {row.method} is drawn from one.",
        )
    if isinstance(row.source, tuple):
        _require_known(f"variants.{name}.from", row.source, _ORIGINS[Reads.SOURCES].known(file, names))
        return list(row.source)
    way, kind = WAYS[row.method], ORIGINS.get(row.method)
    if kind is None and row.source is not None:
        raise ParamsError(
            f"variants.{name}.from is {row.source!r}; method {row.method} is drawn from the public texts.",
            "Take it out.",
        )
    if way.source == "named" and row.source is None:
        raise ParamsError(f"variants.{name}.from is missing.", f"Name what a variant of {row.method} is drawn from.")
    source = row.source or {"own": name, "base": BASE}.get(way.source)
    if kind is not None:
        _require_known(f"variants.{name}.from", [str(source)], kind.known(file, names))
    return source


def _language_model_of(file: File, name: str) -> str:
    """The language model of a discriminator."""
    entry: Sourced = file.discriminators[name]
    if entry.source is None:
        raise ParamsError(f"discriminators.{name}.from is missing.", "Name the language model that it stands behind.")
    _require_known(f"discriminators.{name}.from", [entry.source], file.lms)
    return entry.source


def _writer(file: File, name: str) -> str:
    """The author of zero-shot texts."""
    source = file.zero_shot[name].source
    if source is None:
        raise ParamsError(f"zero_shot.{name}.from is missing.", "Name the author that writes it.")
    _require_known(f"zero_shot.{name}.from", [source], {*file.authors, BASE})
    return source


def _choose_or_default(chosen: Iterable[str] | None, default: Iterable[str]) -> list[str]:
    return list(default if chosen is None else chosen)


def _require_known(key: str, names: Iterable[str], allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise ParamsError(f"{key} is {name!r}.", f"Allowed here: {', '.join(sorted(allowed)) or 'nothing yet'}.")
