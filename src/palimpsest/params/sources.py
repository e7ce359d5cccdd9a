"""The sources that params.yaml names as public, and which public models the stages that run need."""

import json
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.methods.evolve.authors import Base, Corpus
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.method import Family, Reads
from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.models.settings import BARE
from palimpsest.params.file import load_extensions
from palimpsest.params.schema import Params
from palimpsest.records.vouched import EMBEDDED, PublicSource

# Keys of `run` that name things made from the public language model, or asked of it.
_OF_THE_BASE = ("teach_similar", "decoder_pretrain")
_NONE, _SOME, _ALL = range(3)  # of the rows of a variant
_KIND = ' of the kind "{label}" ({description})'  # in the usual prompt, which a task without labels cannot fill


def reads_base(params: Params) -> bool:
    """Whether anything that runs reads the public language model."""
    begins = any(params.authors[author].kind == "base" for author in params.run.zero_shot.values())
    asked = any(keys.reads_base(params) for keys in load_extensions())
    if begins or asked or any(getattr(params.run, key) for key in _OF_THE_BASE):
        return True
    trained = (known for known in METHODS if known.family is Family.TRAINS and getattr(params.run, known.stage))
    written = (inputs_of(params, name) for name in params.run.evaluate if name not in params.run.dp_lm)
    return any(Reads.BASE in reads for reads in (*(known.reads for known in trained), *written))


def reads_named(params: Params) -> bool:
    """Whether the public language model is read and is a named one from elsewhere, whose training data are unknown."""
    return params.models.lm != EMBEDDED and reads_base(params)


def inputs_of(params: Params, variant: str) -> frozenset[Reads]:
    """Return what a variant with a charge of its own reads: what its method reads, less what its author spares it."""
    known = method(params.variants[variant].method)
    if Reads.AUTHOR not in known.reads:
        return known.reads
    return known.reads_with(params.authors[getattr(params.run, known.stage)[variant]])


def describe_public_rows(params: Params, variants: Iterable[str]) -> str:
    """Return what a reader must know of those variants whose rows are public texts word for word; "" where none are."""
    shares = {name: _public_share(params, name) for name in variants}
    written = bool(params.run.write_public)
    origin = f"that the model {name_writer(params)} wrote," if written else "of the public file"
    told = [
        f"Rows of {', '.join(named)} {verb} texts {origin} word for word."
        for share, verb in ((_ALL, "are"), (_SOME, "can be"))
        if (named := [name for name, own in shares.items() if own == share])
    ]
    licence = params.dataset.public_license or "not stated"
    rest = f"People may have written them, and no epsilon covers these people. Licence of that file: {licence}."
    if written:
        rest = f"No record was shown to it. What it learned from no epsilon covers. Licence of its texts: {licence}."
    return " ".join([*told, rest]) if told else ""


def _public_share(params: Params, variant: str) -> int:
    """Return whether none, some or all rows of a variant can be public texts."""
    row, run = params.variants[variant], params.run
    known = method(row.method)
    if below := run.choose.get(variant) or [name for name in [run.vote_select.get(variant)] if name]:
        return max(_public_share(params, name) for name in below)
    if Reads.AUTHOR in known.reads:
        author = params.authors[getattr(run, known.stage)[variant]]
        return _ALL if author.kind == "corpus" else _SOME * (getattr(author, "start", None) == "whole")
    if known.family is not Family.CHOOSES:
        return _NONE
    first = params.zero_shot.get(getattr(row.settings, "zero_shot", None) or "")
    return _ALL if Reads.TEXTS in known.reads else _SOME * (first is None or first.beside)


def public_sources(params: Params) -> tuple[PublicSource, ...]:
    """Return every source of the workspace, each key once; a language model that is trained on public text is none.

    A new key that may name a file or a model belongs here: nothing else is checked, and nothing else can be loaded.
    """
    return tuple(_sources(params))


def _sources(params: Params) -> Iterator[PublicSource]:
    data, models = params.dataset, params.models
    yield PublicSource("dataset.public", "text", data.public)
    if data.public_test is not None:
        yield PublicSource("dataset.public_test", "text", data.public_test)
    if models.lm != EMBEDDED:
        writes = any(params.authors[author].kind == "base" for author in params.run.write_public.values())
        yield PublicSource("models.lm", "model", models.lm, writes or reads_base(params))
    yield PublicSource("models.encoder", "model", models.encoder)
    if models.classifier is not None:
        yield PublicSource("models.classifier", "model", models.classifier, "finetuned" in params.utility.evaluators)
    if models.next_token != EMBEDDED:
        used = NEXT_TOKEN in params.utility.evaluators
        yield PublicSource("models.next_token", "model", models.next_token, used)
    for name, author in params.authors.items():
        if isinstance(author, LocalChatSettings | Endpoint):
            used, words = name in _writers(params), _dump_json(author.prompts.model_dump(mode="json"))
            yield PublicSource(
                f"authors.{name}.model", "model" if author.kind == "local" else "endpoint", author.model, used
            )
            yield PublicSource(f"authors.{name}.prompts", "prompts", words, used)
    for keys in load_extensions():
        yield from keys.sources(params)
    yield from _prompts(params)


def _prompts(params: Params) -> Iterator[PublicSource]:
    """Yield the prompts that texts are written with; the words of the evaluations reach no row."""
    data, written_by = params.dataset, _writers(params)
    if data.labels:
        yield PublicSource("dataset.labels", "prompts", _dump_json(dict(data.labels)))
    if data.json_schema is not None:
        yield PublicSource("dataset.json_schema", "prompts", _dump_json(data.json_schema))
    if data.written is not None and data.written.about is not None:
        yield PublicSource("dataset.written.about", "prompts", data.written.about)
    for name in params.run.dp_train:
        if params.lms[name].train.prompt != BARE:
            yield PublicSource(f"lms.{name}.prompt", "prompts", params.lms[name].train.prompt)
    for name, author in params.authors.items():
        if author.kind == "base" and author.prompt != BARE:
            words = _dump_json([author.prompt, author.paraphrase, author.blanks])
            yield PublicSource(f"authors.{name}.prompt", "prompts", words, name in written_by)
    for name in params.run.private_predict:
        settings: Any = params.variants[name].settings
        words = _dump_json(settings.prompt.model_dump(mode="json"))
        yield PublicSource(f"variants.{name}.prompt", "prompts", words)


def _writers(params: Params) -> frozenset[str]:
    """Return every author of texts that are used in the run."""
    run = params.run
    return frozenset({*run.private_evolve.values(), *run.zero_shot.values(), *run.write_public.values()})


def _dump_json(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, sort_keys=True)


def writer_of(params: Params) -> Base | LocalChatSettings | Endpoint:
    """Return the author of the public file, told what the texts are and shown no public text, as there is none."""
    written, (name,) = params.dataset.written, params.run.write_public.values()
    author = params.authors[name]
    assert written is not None
    assert not isinstance(author, Corpus)  # which `checks` refuses
    about = "" if written.about is None else written.about.replace("{", "{{").replace("}", "}}")
    if isinstance(author, Base):
        told = {"prompt": f"{about}\n\n{author.prompt}" if about else author.prompt}
        return author.model_copy(update={"start": "prompt", "examples": 0, "shots": 0, **told})
    random = author.prompts.random if params.dataset.labels else author.prompts.random.replace(_KIND, "")
    prompts = {"random": f"{random}\nThe text is one of these: {about}." if about else random}
    if not params.dataset.labels:
        prompts[author.prompts.vary] = "{text}"  # nothing is varied, and the usual prompt names labels
    return author.model_copy(update={"prompts": author.prompts.model_copy(update=prompts)})


def name_writer(params: Params) -> str:
    """Return the name of the model that writes the public file; of a folder only the last part."""
    author = writer_of(params)
    model = params.models.lm if isinstance(author, Base) else author.model
    return PurePath(model).name if model.startswith(("/", "~", ".")) else model
