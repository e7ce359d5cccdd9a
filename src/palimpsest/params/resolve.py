"""Turns what a person wrote into every value: sections in place, what runs, and defaults that depend on the data.

Pure: only the file's content is read here.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from palimpsest.errors import ParamsError
from palimpsest.extensions import require_apart
from palimpsest.methods.registry import method
from palimpsest.methods.shared.method import Family, Method
from palimpsest.methods.shared.tools import Reads
from palimpsest.params.derived import ANY, DERIVED, Derived
from palimpsest.params.extension import brought
from palimpsest.params.file import File, Sourced
from palimpsest.params.schema import DiscriminatorSettings, LanguageModel, Variant
from palimpsest.params.sections import Dataset
from palimpsest.params.wording import prompt_alone, put_into_words
from palimpsest.records.structured import form_of
from palimpsest.records.vouched import EMBEDDED

BASE = "base"  # the public language model as it is, as a reader and as an author
_AUTHORS = (BASE, "corpus")  # authors that need no settings, and so no entry
_TAUGHT = "taught/"
_ENTRIES = ("lms", "discriminators", "variants", "taught", "authors", "decoders", "zero_shot")
_WORKED_OUT = {*_ENTRIES, "runs"}

Parts = tuple[int | str, ...]  # of a key: sections, names of the file's own, and places in a list


def resolve(file: File) -> dict[str, Any]:
    """Return everything that `Params` is made of, except defaults that depend on nothing: those are its own.

    Raises:
        ParamsError: a variant's method or source is unknown.
        ValidationError: the section `dataset` is wrong.
    """
    data = Dataset.model_validate(file.dataset)
    body = spread(file)
    body["run"] = _run(file)
    for name in (*body["run"]["private_evolve"].values(), *body["run"]["zero_shot"].values()):
        if name in _AUTHORS:
            body["authors"].setdefault(name, {"kind": name})
    put_into_words(body, bool(data.labels), None if data.json_schema is None else form_of(data.json_schema))
    lm = file.models.get("lm", EMBEDDED)
    for item in DERIVED.values():
        for section in _places(body, item):
            section.setdefault(item.path[-1], item.of(data, lm))
    prompt_alone(body)
    return body


def spread(file: File) -> dict[str, Any]:
    """Return what is written, placed as in `Params`: the settings of models and variants in sections of their own."""
    body: dict[str, Any] = {key: _copy(getattr(file, key)) for key in file.model_fields_set - _WORKED_OUT}
    body["lms"] = {name: _parted(entry.written, LanguageModel) for name, entry in file.lms.items()}
    body["discriminators"] = {
        name: _parted(row.written, DiscriminatorSettings) for name, row in file.discriminators.items()
    }
    body["variants"] = {name: _parted(row.written, VARIANTS.get(row.method)) for name, row in file.variants.items()}
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


def _others(file: File, names: Collection[str]) -> list[str]:
    chooses = {Reads.SOURCE, Reads.SOURCES}
    return [name for name in names if not WAYS[file.variants[name].method].reads & chooses]


def _chosen_from(file: File, names: Collection[str]) -> list[str]:
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
    Reads.SOURCE: Origin("another variant", _others),
    Reads.SOURCES: Origin("a list of other variants", _chosen_from),
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


def as_written(parts: Parts) -> Parts:
    """Return a key of `Params` as the file has it: without the section of an entry's settings."""
    if len(parts) > 2 and parts[2] in SECTIONS.get(str(parts[0]), ()):
        return parts[:2] + parts[3:]
    return parts


def _parted(written: Mapping[str, Any], kind: type[BaseModel] | None) -> dict[str, Any]:
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
            found = [entry for section in found for entry in section.values() if _is(entry, item.tag)]
        elif number and item.path[number - 1] == ANY:  # the settings of an entry: another method's has none
            found = [section[name] for section in found if name in section]
        else:
            found = [section.setdefault(name, {}) for section in found]
        found = [section for section in found if isinstance(section, dict)]
    yield from found


def _is(entry: Any, tag: str | None) -> bool:
    if tag is None or not isinstance(entry, dict):
        return tag is None
    return tag in (entry.get("method"), entry.get("kind"), (entry.get("train") or {}).get("reads"))


def _run(file: File) -> dict[str, Any]:
    """Return the section `run`: every variant where its method runs, and the models that these are drawn from."""
    runs, rows = file.runs, file.variants
    _known("runs.evaluate", runs.evaluate or (), rows)
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
    _known("runs.fit", runs.fit, [*file.lms, *file.discriminators])
    models = {*run["dp_lm"].values(), *runs.fit}
    judges = {name: _behind(file, name) for name in file.discriminators if name in models}
    fitted = models | set(judges.values()) | {name for keys in brought() for name in keys.fits(runs)}
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
        "audit": _or(runs.audit, names),
    }
    added = [keys.run(runs, run) for keys in brought()]
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
        _known(f"variants.{name}.from", row.source, _ORIGINS[Reads.SOURCES].known(file, names))
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
        _known(f"variants.{name}.from", [str(source)], kind.known(file, names))
    return source


def _behind(file: File, name: str) -> str:
    """The language model of a discriminator."""
    entry: Sourced = file.discriminators[name]
    if entry.source is None:
        raise ParamsError(f"discriminators.{name}.from is missing.", "Name the language model that it stands behind.")
    _known(f"discriminators.{name}.from", [entry.source], file.lms)
    return entry.source


def _writer(file: File, name: str) -> str:
    """The author of zero-shot texts."""
    source = file.zero_shot[name].source
    if source is None:
        raise ParamsError(f"zero_shot.{name}.from is missing.", "Name the author that writes it.")
    _known(f"zero_shot.{name}.from", [source], {*file.authors, BASE})
    return source


def _or(chosen: Iterable[str] | None, default: Iterable[str]) -> list[str]:
    return list(default if chosen is None else chosen)


def _known(key: str, names: Iterable[str], allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise ParamsError(f"{key} is {name!r}.", f"Allowed here: {', '.join(sorted(allowed)) or 'nothing yet'}.")
