"""Checks across the sections of params.yaml: the first of these problems refuses the file."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.methods.dp_lm.settings import TUNED, VARIANTS, Kind
from palimpsest.methods.registry import CHARGED, METHODS, method, stages_that_spend
from palimpsest.models.settings import BARE
from palimpsest.params.file import load_extensions
from palimpsest.privacy.ledger.records import milestone_problem
from palimpsest.privacy.shown import delta_down
from palimpsest.records.schema import LEAST_DELTA
from palimpsest.records.vouched import EMBEDDED
from palimpsest.records.world.shipped import FILES
from palimpsest.workspace import RAW

if TYPE_CHECKING:
    from palimpsest.params.schema import Fitted, Params

_TALKERS = ("local", "endpoint")  # authors that answer in words


def problems(params: "Params") -> Iterator[str]:
    """Yield each problem with the key, its value and what is allowed."""
    for check in (
        _check_delta, _check_milestones, _check_world, _check_run, _check_task, _check_heads,
        _check_discriminators, _check_sources, _check_wording, _check_authors, _check_zero_shot, _check_written,
        _check_batches, _check_priors, _check_evaluators, _check_extensions, _check_release, _check_ledger,
    ):  # fmt: skip
        yield from check(params)


def find_unknown(key: str, names: Iterable[str], section: str, allowed: Collection[str]) -> Iterator[str]:
    """Yield a problem for each name under a key that is not among those of a section."""
    for name in names:
        if name not in allowed:
            yield f"{key} names {name!r}; allowed are those of {section}: {sorted(allowed)}"


def _check_delta(params: "Params") -> Iterator[str]:
    data = params.schema_of_data
    if params.delta > 1.0 / data.n_units * (1 + 1e-12):
        yield (
            f"privacy.budget.delta is {params.delta!r}; allowed is at most 1 / n for the {data.n_units} {data.unit}s "
            f"declared, {delta_down(1 / data.n_units)}"
        )
    if params.delta < LEAST_DELTA:
        yield (
            f"privacy.budget.delta is {params.delta!r}; allowed is at least {LEAST_DELTA:g}: below it accountants on a "
            "grid say too much"
        )


def _check_milestones(params: "Params") -> Iterator[str]:
    budget = params.privacy.budget
    if problem := milestone_problem(budget.milestones, budget.filter):
        yield f"privacy.budget.milestones is {list(budget.milestones)}; {problem}"


def _check_world(params: "Params") -> Iterator[str]:
    if params.world is None:
        return
    for key in ("private", "test", "public", "public_test"):
        path = getattr(params.dataset, key)
        # Guards for real people are off where a world is set.
        if path is not None and Path(path) not in [RAW / file for file in FILES]:
            yield f"dataset.{key} is {path!r}; where world is set, all files are the invented ones in {RAW.as_posix()}"


def _check_run(params: "Params") -> Iterator[str]:
    """Check that all that runs is in the file, and what it is drawn from, too."""
    run = params.run
    drawn: list[str] = []
    for key in dict.fromkeys(["dp_lm", *(known.stage for known in CHARGED)]):
        named, methods = list(getattr(run, key)), [known.name for known in METHODS if known.run == key]
        rows = [name for name, variant in params.variants.items() if variant.method in methods]
        yield from find_unknown(f"run.{key}", named, f"variants of method {' and '.join(methods)}", rows)
        drawn += named
    models, readers = [*run.dp_train, *run.discriminator], ["base", *(f"taught/{name}" for name in run.teach_similar)]
    among = [name for name in drawn if name not in run.choose]
    tabled = [name for name in among if name not in run.tabulate]
    changed = [name for name in tabled if name not in run.restate]
    others = [name for name in changed if name not in run.vote_select]
    for key, names, section, allowed in (
        ("dp_train", run.dp_train, "lms", params.lms),
        ("discriminator", run.discriminator, "discriminators", params.discriminators),
        ("discriminator", run.discriminator.values(), "run.dp_train", run.dp_train),
        ("teach_similar", run.teach_similar, "taught", params.taught),
        ("private_predict", run.private_predict.values(), "run.teach_similar, and base", readers),
        ("dp_lm", run.dp_lm.values(), "run.dp_train and run.discriminator", models),
        ("private_evolve", run.private_evolve.values(), "authors", params.authors),
        ("decoder_pretrain", run.decoder_pretrain, "decoders", params.decoders),
        ("zero_shot", run.zero_shot, "zero_shot", params.zero_shot),
        ("zero_shot", run.zero_shot.values(), "authors", params.authors),
        ("eda_evolve", run.eda_evolve.values(), "run.decoder_pretrain", run.decoder_pretrain),
        ("vote_select", run.vote_select.values(), "variants of other methods that run", others),
        ("restate", run.restate.values(), "variants of other methods that run", changed),
        ("tabulate", run.tabulate.values(), "variants of other methods that run", tabled),
        ("choose", chain.from_iterable(run.choose.values()), "variants of other methods that run", among),
        ("audit", run.audit, "run.evaluate", run.evaluate),
    ):
        yield from find_unknown(f"run.{key}", names, section, allowed)
    charged = sorted(name for name, variant in params.variants.items() if variant.method != "dp_lm")
    counts = Counter([*params.lms, *params.discriminators, *charged])
    if shared := sorted(name for name, count in counts.items() if count > 1):
        yield f"lms, discriminators and the variants that are charged name {shared} twice; allowed is each name once"
    if sorted(run.evaluate) != sorted(drawn):
        yield f"run.evaluate is {list(run.evaluate)}; it must list each variant of run once: {drawn}"


def _check_task(params: "Params") -> Iterator[str]:
    """Check that every method that runs can do the task."""
    task, trained = params.dataset.task, {known.stage: known for known in METHODS if known not in CHARGED}
    for stage in stages_that_spend():
        for name in getattr(params.run, stage):
            known = trained.get(stage) or method(params.variants[name].method)
            if task not in known.tasks:
                able = " and ".join(known.tasks)
                yield f"run.{stage} names {name!r}; the task is {task}, method {known.name} is for {able}"


def _check_heads(params: "Params") -> Iterator[str]:
    """Check that each variant draws from a model with the discriminator that it needs."""
    for name, model in params.run.dp_lm.items():
        row: Any = params.variants[name]
        if problem := _head_problem(params, VARIANTS[row.variant], model):
            yield f"variants.{name} is {row.variant!r} and run.dp_lm gives it {problem}"


def _head_problem(params: "Params", kind: Kind, model: str) -> str | None:
    if kind.head == "own":
        if model in params.lms:
            return f"{model!r}, a language model; it needs a discriminator (run.discriminator)"
        reads = params.discriminators[model].train.reads
        whole = kind.steering == "pplm" and reads in ("encoder", TUNED)
        return f"{model!r}, which reads texts, not states" if whole else None
    if model not in params.lms:
        return f"{model!r}; it needs a language model"
    train = params.lms[model].train
    if kind.head == "joint" and not train.discriminator_weight:
        return f"{model!r}, which has no discriminator; set its discriminator_weight above 0"
    if kind.steering == "state" and train.discriminator_reads != "both":
        return f"{model!r}, whose discriminator does not read embeddings; set its discriminator_reads to both"
    return None


def _check_discriminators(params: "Params") -> Iterator[str]:
    for name, model in params.run.discriminator.items():
        own, lm = params.discriminators[name], params.lms[model]
        yield from _check_base(f"discriminators.{name}", own, "language model", model, lm)


def _check_sources(params: "Params") -> Iterator[str]:
    """Check that a variant made of another variant's rows is charged on top of them."""
    run = params.run
    for name, source in (*run.vote_select.items(), *run.restate.items(), *run.tabulate.items()):
        yield from _check_base(f"variants.{name}", params.charged[name], "source", source, params.source_of(source))
    for name, sources in params.run.choose.items():
        if len(set(sources)) < max(2, len(sources)):
            yield f"variants.{name}.from is {list(sources)}; allowed are two or more variants, each once"
        for source in sources:
            yield from _check_base(f"variants.{name}", params.charged[name], "source", source, params.source_of(source))


def _check_base(key: str, own: "Fitted", kind: str, name: str, below: "Fitted") -> Iterator[str]:
    """Check that what counts its base promises no more than the base does, and costs more."""
    if own.purpose == "release" and below.purpose == "reference":
        yield f"{key} is meant for release, but its {kind} {name!r} is not"
    if own.epsilon <= below.epsilon < math.inf:
        yield (
            f"{key}.epsilon is {own.epsilon:g} and counts its {kind} {name!r}, which takes {below.epsilon:g} alone: "
            "allowed is more than that"
        )


def _check_wording(params: "Params") -> Iterator[str]:
    """Check that a model reads one form of prompt: the one that public text taught it, or words."""
    if params.learns_prompts and params.models.words is not None:
        yield "models.words asks for prompts in words, and models.prompts teaches another form: set one of them to null"


def _check_authors(params: "Params") -> Iterator[str]:
    """Check that keywords are of public labels, and that what needs labels or the prompt of one has them."""
    labels, run = set(params.dataset.labels), params.run.private_evolve
    for name, author in params.authors.items():
        for key in ("keywords", "examples"):
            if unknown := set(getattr(getattr(author, "prompts", None), key, {})) - labels - {"*"}:
                yield f"authors.{name}.prompts.{key} names {sorted(unknown)}; allowed are labels, and *"
    for name, chosen in run.items():
        exact = params.charged[name].purpose == "reference" or params.testing.noise_seed is not None
        if exact and params.authors[chosen].kind == "endpoint":
            yield f"variants.{name} is not private and would send what rows chose to the endpoint {chosen!r}"
    talking = [name for name, author in run.items() if params.authors[author].kind in _TALKERS]
    if params.dataset.task == "json" and talking:
        yield f"run.private_evolve gives {talking} an author that answers in words; task json needs base or corpus"


def _check_zero_shot(params: "Params") -> Iterator[str]:
    """Check that each has an author that writes, and enough texts for the first rounds that vote for it."""
    for name, chosen in params.run.zero_shot.items():
        author = params.authors[chosen]
        if author.kind == "corpus" or getattr(author, "start", "prompt") != "prompt":
            yield (
                f"run.zero_shot gives {name!r} the author {chosen!r}, which begins with public texts; allowed is one "
                "that writes behind a prompt alone: kind local or endpoint, or base with `start: prompt`"
            )
    for name in params.run.eda_evolve:
        settings: Any = params.variants[name].settings
        if settings.zero_shot is None:
            continue
        key = f"variants.{name}.zero_shot"
        yield from find_unknown(key, [settings.zero_shot], "zero_shot", params.run.zero_shot)
        if settings.zero_shot not in params.zero_shot:
            continue
        given = params.zero_shot[settings.zero_shot]
        if not given.beside and given.texts < settings.start:
            yield f"variants.{name}.start is {settings.start}; allowed is at most zero_shot texts, {given.texts}"


def _check_written(params: "Params") -> Iterator[str]:
    """Check that the author of the public text needs none to write, and is told in words what to write."""
    for chosen in params.run.write_public.values():
        author, key = params.authors[chosen], f"dataset.written.author is {chosen!r}"
        if author.kind == "corpus" or (author.kind == "base" and params.models.lm == EMBEDDED):
            yield (
                f"{key}, which has words from public text alone, and there is none: name a file in dataset.public, a "
                "language model in models.lm, or an author of kind local or endpoint"
            )
        elif author.kind == "base" and author.prompt == BARE:
            yield f"{key}, which is told nothing in words: name models.words, or give authors.{chosen}.prompt"
        elif author.kind in _TALKERS and params.dataset.task == "json":
            yield f"{key}, which answers in words; task json needs base, or a file in dataset.public"


def _check_batches(params: "Params") -> Iterator[str]:
    """Check that no sample is larger than the declared number of units."""
    units, unit = params.schema_of_data.n_units, params.schema_of_data.unit
    sizes = {f"{name}: train.batch": model.train.batch for name, model in params.fitted.items()}
    for key, size in {**sizes, "audit.size": params.audit.size}.items():
        if size > units:
            yield f"{key} is {size}; allowed is at most the {units} {unit}s declared"


def _check_priors(params: "Params") -> Iterator[str]:
    priors = {f"lms.{name}.train": model.train.prior for name, model in params.lms.items()}
    for name, row in params.variants.items():
        priors[f"variants.{name}.{row.method}"] = getattr(row.settings, "prior", None)
    for key, prior in priors.items():
        unknown = set(prior or {}) ^ set(params.dataset.labels)
        if prior is not None and unknown:
            yield f"{key}.prior and dataset.labels differ in {sorted(unknown)}"


def _check_evaluators(params: "Params") -> Iterator[str]:
    blind = [name for name in params.utility.evaluators if name != NEXT_TOKEN]
    if blind and not params.dataset.labels:
        yield f"utility.evaluators names {blind}; task {params.dataset.task} has no labels: allowed is {NEXT_TOKEN}"
    if "finetuned" in params.utility.evaluators and params.models.classifier is None:
        yield "utility.evaluators names 'finetuned'; models.classifier must then name an encoder, got null"


def _check_extensions(params: "Params") -> Iterator[str]:
    for keys in load_extensions():
        yield from keys.problems(params)


def _check_release(params: "Params") -> Iterator[str]:
    yield from find_unknown("release.variants", params.release.variants, "run.evaluate", params.run.evaluate)
    for name in params.release.variants:
        if params.source_of(name).purpose != "release":
            yield f"release.variants names {name!r}, which is a reference run and never leaves"
    if params.release.gates.accuracy is not None and params.dataset.public_test is None:
        yield "release.gates.accuracy is asked for; dataset.public_test must then name a file, got null"


def _check_ledger(params: "Params") -> Iterator[str]:
    place = params.privacy.ledger
    if place is not None and params.world is None and "://" not in place and not place.startswith(("/", "~")):
        yield (
            f"privacy.ledger is {place!r}, inside the workspace; for data of your own it must be an absolute path or a "
            "database URL, because a second copy of the workspace would start with a full budget"
        )
