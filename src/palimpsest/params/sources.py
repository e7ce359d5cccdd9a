"""What params.yaml names as public: text files, models, and the words that models are told."""

import json
from collections.abc import Iterator
from typing import Any

from palimpsest.models.chat.settings import Endpoint, LocalChat
from palimpsest.params.schema import Params
from palimpsest.records.vouched import EMBEDDED, Source


def public_sources(params: Params) -> tuple[Source, ...]:
    """Every source of the workspace, each key once; the language model that is trained on public text is none.

    A new key that may name a file or a model belongs here: nothing else is checked, and nothing else can be loaded.
    """
    return (*_texts(params), *_models(params), *_authors(params), *_words(params))


def _texts(params: Params) -> Iterator[Source]:
    yield Source("dataset.public", "text", params.dataset.public)
    if params.dataset.public_test is not None:
        yield Source("dataset.public_test", "text", params.dataset.public_test)


def _models(params: Params) -> Iterator[Source]:
    models = params.models
    if models.lm != EMBEDDED:
        yield Source("models.lm", "model", models.lm)
    yield Source("models.encoder", "model", models.encoder)
    if models.classifier is not None:
        yield Source("models.classifier", "model", models.classifier, "finetuned" in params.utility.evaluators)


def _authors(params: Params) -> Iterator[Source]:
    for name, author in params.authors.items():
        if isinstance(author, LocalChat | Endpoint):
            used = name in params.run.private_evolve.values()
            yield Source(f"authors.{name}.model", "model" if author.kind == "local" else "endpoint", author.model, used)
            yield Source(f"authors.{name}.prompts", "prompts", _written(author.prompts.model_dump(mode="json")), used)


def _words(params: Params) -> Iterator[Source]:
    """Of what texts are written with; those of the evaluations reach no row."""
    if params.dataset.labels:
        yield Source("dataset.labels", "prompts", _written(dict(params.dataset.labels)))
    if params.dataset.json_schema is not None:
        yield Source("dataset.json_schema", "prompts", _written(params.dataset.json_schema))
    for name in params.run.private_predict:
        settings = getattr(params.variants[name], params.variants[name].method)
        yield Source(f"variants.{name}.prompt", "prompts", _written(settings.prompt.model_dump(mode="json")))


def _written(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, sort_keys=True)
