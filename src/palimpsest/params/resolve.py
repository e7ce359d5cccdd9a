"""From what a person wrote to what runs, and the way back.

The first works out what runs, and the prompts in words; the schema has all other defaults. The way back leads from
every value to what a person would write, and tells the origin of each value.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from pydantic import ValidationError

from palimpsest.errors import ParamsError
from palimpsest.extensions import require_apart
from palimpsest.methods.registry import CHARGED, method
from palimpsest.methods.shared.method import Family, Method, Reads
from palimpsest.models.chat.settings import is_english, system_message
from palimpsest.models.settings import BARE, Words, words_of
from palimpsest.params.file import FILE, NAMED, RUNS, File, Sourced, keys_of, load_extensions
from palimpsest.params.schema import (
    ChargedVariant,
    Dataset,
    DiscriminatorSettings,
    DpLmVariant,
    Entry,
    LanguageModel,
    Params,
    stated,
)
from palimpsest.records.structured import form_of
from palimpsest.records.vouched import EMBEDDED
from palimpsest.settings import Settings, Stated, rule_of

_EXAMPLES = 2  # public texts that an author is shown
BASE = "base"  # the public language model as it is, as a reader and as an author
_AUTHORS = (BASE, "corpus")  # authors that need no settings, and so no entry
_TAUGHT = "taught/"
_FIRST = ("method", "epsilon", "purpose", "from", "variant")
WORKED_OUT, DEFAULT = "worked out", "default"


def resolve(file: File) -> Params:
    """Return everything that a file stands for.

    Raises:
        ParamsError: a variant's method or source is unknown.
        ValidationError: a value is wrong.
    """
    data = Dataset.model_validate(file.dataset)
    return Params.model_validate(_work_out(file, data), context=stated(data, file.models.get("lm", EMBEDDED)))


def _work_out(file: File, data: Dataset) -> dict[str, Any]:
    """Return what is written, with what runs and with the prompts in words.

    Raises:
        ParamsError: a variant's method or source is unknown.
        ValidationError: a section is unknown.
    """
    body = file.written
    if unknown := [key for key in body if key not in Params.model_fields or key == "run"]:
        raise ValidationError.from_exception_data(
            "File", [{"type": "extra_forbidden", "loc": (key,), "input": body[key]} for key in unknown]
        )
    body["run"] = _find_runs(file)
    written_by = (body["run"][stage].values() for stage in ("private_evolve", "zero_shot", "write_public"))
    for name in chain.from_iterable(written_by):
        if name in _AUTHORS:
            body["authors"].setdefault(name, {"kind": name})
    _put_into_words(body, bool(data.labels), None if data.json_schema is None else form_of(data.json_schema))
    if file.models.get("lm", EMBEDDED) != EMBEDDED:
        body.setdefault("public_lm", {})
    _fill_public_prompt(body)
    for author in body["authors"].values() if not is_english(data.language) else ():
        if author.get("kind") in ("local", "endpoint"):
            _fill(author.setdefault("prompts", {}), {"system": system_message(data.language)})
    return body


def _put_into_words(body: dict[str, Any], labelled: bool, form: str | None = None) -> None:
    """Fill in the prompts of models, base authors, variants that read the base model as it is, and what packages bring.

    `form` is the form of records of JSON, if there are such records.
    """
    words = _parse_words(body.get("models", {}).get("words"))
    if words is None:
        return
    words = words.model_copy(update={"form": words.form or form})
    for entry in body["lms"].values():
        _fill(entry, {"prompt": words.prompt(labelled)})
    for entry in body["authors"].values():
        _fill(entry if entry.get("kind") == "base" else None, _authors(words, labelled))
    for section, key, prompt in ((*at, said) for keys in load_extensions() for at, said in keys.words(words).items()):
        holder = body.get(section)
        _fill(holder.get(key) if isinstance(holder, dict) else None, prompt)
    for name in body["run"]["steer"]:
        _fill(body["variants"][name], {"prompt": words.prompt(labelled), "ends": "line"})
    for name in body["run"]["phrases"]:
        asked = {"about": words.prompt_about(labelled), "plain": words.prompt(labelled), "ends": "line"}
        _fill(body["variants"][name].setdefault("prompt", {}), asked)
    for name, source in body["run"]["private_predict"].items():
        row = body["variants"][name]
        if source == BASE:
            _fill(row.setdefault("prompt", {}), method(row["method"]).worded(words, labelled))


def _fill_public_prompt(body: dict[str, Any]) -> None:
    """Fill in the prompt of `public_lm`: the first one given to the base model where private rows are read."""
    for prompt in _public_prompts(body):
        _fill(body.get("public_lm"), {"prompt": prompt, "ends": "eos" if prompt == BARE else "line"})


def _public_prompts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the prompts without a private text that models and variants give to the base as it is."""
    run, variants = body["run"], body["variants"]
    yield from (body["lms"][name].get("prompt", BARE) for name in run["dp_train"])
    yield from (variants[name].get("prompt", BARE) for name in run["steer"])
    for said in (variants[name].get("prompt", {}) for name in run["phrases"]):
        yield said.get("plain", BARE) if isinstance(said, Mapping) else BARE
    for said in (variants[name].get("prompt", {}) for name, source in run["private_predict"].items() if source == BASE):
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


# By name, every method of a variant: the stage in which it is made, and what it is drawn from.
WAYS: Mapping[str, Method] = {known.name: known for known in (method("dp_lm"), *CHARGED)}


class _Origin(NamedTuple):
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
    Reads.FITTED: _Origin("a key of `lms` or `discriminators`", lambda file, _: [*file.lms, *file.discriminators]),
    Reads.READER: _Origin(
        "base, the public language model as it is, or taught/<name>",
        lambda file, _: [BASE, *(f"{_TAUGHT}{name}" for name in file.taught)],
    ),
    Reads.AUTHOR: _Origin(
        "a key of `authors`, or base or corpus, which need none", lambda file, _: {*file.authors, *_AUTHORS}
    ),
    Reads.DECODER: _Origin("a key of `decoders`", lambda file, _: file.decoders),
    Reads.SOURCE: _Origin("another variant", _list_sources),
    Reads.SOURCES: _Origin("a list of other variants", _list_choices),
}


def _origin(way: Method) -> _Origin | None:
    """Return what variants of a method may be drawn from; None where they take no `from`."""
    if way.family is Family.TRAINS:  # it reads the base; its variants are drawn from what it fitted
        return _ORIGINS[Reads.FITTED]
    return next((origin for what, origin in _ORIGINS.items() if what in way.reads), None)


ORIGINS: Mapping[str, _Origin] = {name: origin for name, way in WAYS.items() if (origin := _origin(way))}

Parts = tuple[int | str, ...]  # of a key: sections, names of the file's own, and places in a list
_HELD = {
    "lms": {LanguageModel.holds},
    "discriminators": {DiscriminatorSettings.holds},
    "variants": {DpLmVariant.holds, ChargedVariant.holds, *WAYS},
}


def to_file_key(parts: Parts) -> Parts:
    """Return a key of `Params` as the file has it: without the section of an entry's settings."""
    if len(parts) > 2 and parts[2] in _HELD.get(str(parts[0]), ()):
        return parts[:2] + parts[3:]
    return parts


def _find_runs(file: File) -> dict[str, Any]:
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
    judges = {
        name: _named_source(f"discriminators.{name}", entry, "Name the language model that it stands behind.", file.lms)
        for name, entry in file.discriminators.items()
        if name in models
    }
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
        "zero_shot": {
            name: _named_source(f"zero_shot.{name}", entry, "Name the author that writes it.", {*file.authors, BASE})
            for name, entry in file.zero_shot.items()
            if name in starts
        },
        "write_public": _find_writer(file),
        "evaluate": names,
        "audit": names if runs.audit is None else list(runs.audit),
    }
    added = [keys.run(runs, run) for keys in load_extensions()]
    require_apart("an entry of the section run,", [*run, *(key for each in added for key in each)])
    return run | {key: names for each in added for key, names in each.items()}


def _find_writer(file: File) -> dict[str, str]:
    """Return the public file that is to be written with its author; nothing where none is."""
    written = file.dataset.get("written")
    author = written.get("author") if isinstance(written, Mapping) else None
    if author is None:
        return {}
    _require_known("dataset.written.author", [author], {*file.authors, BASE})
    return {"public": author}


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


def _named_source(key: str, entry: Sourced, missing: str, allowed: Collection[str]) -> str:
    """Return what a discriminator stands behind, or who writes zero-shot texts."""
    if entry.source is None:
        raise ParamsError(f"{key}.from is missing.", missing)
    _require_known(f"{key}.from", [entry.source], allowed)
    return entry.source


def _require_known(key: str, names: Iterable[str], allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise ParamsError(f"{key} is {name!r}.", f"Allowed here: {', '.join(sorted(allowed)) or 'nothing yet'}.")


def shorten(params: Params) -> dict[str, Any]:
    """Return the least that resolves to these values, except taught models and decoders from which nothing is drawn."""
    found = _changed(params, params.stated)
    del found["run"]
    _name_sources(found, params)
    for key in ("lms", "discriminators", "variants"):
        found |= {key: {name: _order_keys(entry) for name, entry in found[key].items()}} if key in found else {}
    runs = _runs(found, params)
    return found | ({"runs": runs} if runs else {})


def to_plain(value: Any) -> Any:
    """Return a value as YAML has it: sections and tuples as mappings and lists."""
    if isinstance(value, Settings):
        return {name: to_plain(inner) for name, inner in value.plain_items()}
    if isinstance(value, Mapping):
        return {name: to_plain(inner) for name, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _default_of(section: Settings, key: str, stated: Stated) -> Any:
    """Return the default of a key; `...` where the file has to give a value."""
    field = type(section).model_fields[key]
    if rule := rule_of(field):
        return rule.of(stated, dict(section))
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def _changed(section: Settings, stated: Stated) -> dict[str, Any]:
    """Return the values of a section that differ from their defaults, as the file has them."""
    found: dict[str, Any] = {}
    for key, value in section:
        if isinstance(section, Entry) and key == section.holds:
            found |= _changed(value, stated)
            continue
        default = _default_of(section, key, stated)
        if to_plain(value) == to_plain(default):
            continue
        if isinstance(section, Params) and key in NAMED:
            found[key] = {name: _changed(entry, stated) for name, entry in value.items()}
        elif not isinstance(value, Settings):
            found[key] = to_plain(value)
        elif (inner := _changed(value, stated)) or default is None:
            found[key] = inner
    return found


def _order_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the keys first that a reader wants to know first."""
    return {key: entry[key] for key in _FIRST if key in entry} | dict(entry)


def _name_sources(found: dict[str, Any], params: Params) -> None:
    """Write `from` where it differs from the default."""
    for name, model in params.run.discriminator.items():
        found["discriminators"][name]["from"] = model
    for name, author in params.run.zero_shot.items():
        found.setdefault("zero_shot", {}).setdefault(name, {})["from"] = author
    for name, row in params.variants.items():
        way = WAYS[row.method]
        source = getattr(params.run, way.run).get(name) if way.source != "none" else None
        if source is not None and source != {"own": name, "base": "base"}.get(way.source):
            found["variants"][name]["from"] = source


def _runs(found: Mapping[str, Any], params: Params) -> dict[str, Any]:
    """Return the section `runs`, for where not everything named runs."""
    run, runs = to_plain(params.run), {}
    if run["evaluate"] != list(params.variants):
        runs["evaluate"] = run["evaluate"]
    for key in keys_of(RUNS):
        if run[key]:
            runs[key] = list(run[key])
    usual = _find_runs(File.model_validate({**found, "runs": runs}))
    fitted = {*usual["dp_train"], *usual["discriminator"]}
    if alone := [name for name in (*run["dp_train"], *run["discriminator"]) if name not in fitted]:
        runs["fit"] = alone
        usual = _find_runs(File.model_validate({**found, "runs": runs}))
    if run["audit"] != usual["audit"]:
        runs["audit"] = run["audit"]
    return runs


class Knob(NamedTuple):
    """One value of a workspace.

    Attributes:
        key: as params.yaml would have it; those under `run` follow from the variants.
        value: a text, a number, true, false, null, or a list of them.
        origin: the file, `WORKED_OUT` from it, or `DEFAULT`.
        changed: whether no default gives it.
    """

    key: str
    value: Any
    origin: str
    changed: bool


def knobs(file: File, params: Params) -> list[Knob]:
    """Every value of a file and of all that it stands for, in the order of the schema."""
    written = _written_keys(file)
    worked_out = {path for path, value in _leaves(_work_out(file, params.dataset)) if value != {}}
    needed = _written_keys(File.model_validate(shorten(params)))
    return [
        Knob(
            ".".join(map(str, path)),
            to_plain(value),
            FILE if _is_within(path, written) else WORKED_OUT if follows or _is_within(path, worked_out) else DEFAULT,
            _is_within(path, written) and _is_within(path, needed),
        )
        for path, value, follows in _values(params)
    ]


def _values(section: Settings, above: Parts = ()) -> Iterator[tuple[Parts, Any, bool]]:
    """Yield every value as the file has its key, and whether its default follows from what is stated."""
    for key, value in section:
        at = above if isinstance(section, Entry) and key == section.holds else (*above, key)
        follows = rule_of(type(section).model_fields[key]) is not None
        for path, inner in _leaves(value, at) if isinstance(value, Mapping) and value else ((at, value),):
            if isinstance(inner, Settings):
                yield from _values(inner, path)
            else:
                yield path, inner, follows


def _written_keys(file: File) -> set[Parts]:
    """Return the written keys; a section without one is none."""
    return {path for path, value in _leaves(file.written) if value != {}}


def _leaves(body: Mapping[str, Any], above: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    for key, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _is_within(path: Parts, found: set[Parts]) -> bool:
    """Whether a key, or a section above it that is written as a whole, is among these."""
    return any(path[:depth] in found for depth in range(1, len(path) + 1))
