"""Who writes for `evolve`: an author made from its settings. It is handed public files and nothing private."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from palimpsest.methods.evolve import authors
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.evolve.corpus import CorpusAuthor
from palimpsest.methods.evolve.generator import writings
from palimpsest.methods.evolve.instructed import InstructedAuthor, expected_calls
from palimpsest.methods.evolve.settings import EvolveSettings
from palimpsest.models.chat.build import open_chat
from palimpsest.models.chat.settings import Endpoint, LocalChat
from palimpsest.models.vectors import KeptVectors
from palimpsest.params.schema import Params
from palimpsest.records.vouched import fingerprint_of
from palimpsest.records.write import read_public
from palimpsest.workspace import BASE_LM, CHECKPOINTS, EMBEDDINGS, PUBLIC
from stages.vouching import vouched

ANSWERS = CHECKPOINTS / "answers"  # what language models answered, by the hash of what they were asked


def author_of(params: Params, name: str, variant: str, encode: KeptVectors) -> Author:
    """The author of that name; what an instructed one answers is kept for the variant.

    Raises:
        ModelError: a model cannot be loaded.
        DataError: it is not public.
        BackendError: the key of an endpoint is not set.
    """
    settings = params.authors[name]
    if isinstance(settings, authors.Corpus):
        return _corpus(params, settings, encode)
    if isinstance(settings, authors.Base):
        nearest = authors.Corpus(kind="corpus", neighbours=1)  # it starts texts, and varies none
        corpus = _corpus(params, nearest, encode) if settings.start != "prompt" else None
        return BaseAuthor(settings, BASE_LM, params.seed, corpus)
    folder = vouched(params, f"authors.{name}.model") if isinstance(settings, LocalChat) else None
    chat = open_chat(settings, ANSWERS / f"{variant}.sqlite", params.seed, folder)
    return InstructedAuthor(settings, chat, params.dataset.labels, params.seed)


def digest_of(params: Params, name: str) -> str:
    """What an author's texts depend on beside their seed."""
    settings = params.authors[name]
    found = hashlib.sha256(settings.model_dump_json().encode())
    if isinstance(settings, LocalChat):
        found.update(fingerprint_of(vouched(params, f"authors.{name}.model")).encode())
    if isinstance(settings, authors.Base):
        found.update(fingerprint_of(BASE_LM).encode())
    if isinstance(settings, authors.Base | authors.Corpus):
        found.update(Path(PUBLIC / "train.parquet").read_bytes())
    return found.hexdigest()


def expected(params: Params, name: str, settings: EvolveSettings) -> dict[str, float | int | str]:
    """What a variant's author will be asked, about: requests, tokens and their price, as numbers of a plan."""
    author = params.authors[params.run.private_evolve[name]]
    if not isinstance(author, LocalChat | Endpoint):
        return {}
    calls = expected_calls(author, params.dataset.labels, *writings(settings))
    numbers: dict[str, float | int | str] = {"requests": calls.requests, "tokens": calls.read + calls.written}
    return {**numbers, "cost": calls.cost(author.price)} if isinstance(author, Endpoint) else numbers


def warnings(params: Params, name: str, numbers: Mapping[str, float | int | str]) -> tuple[str, ...]:
    """What the plan says of the money that an author costs, and of limits that it would reach."""
    author = params.authors[params.run.private_evolve[name]]
    if not isinstance(author, Endpoint):
        return ()
    cost, tokens = float(numbers["cost"]), int(numbers["tokens"])
    found = [f"the author will cost about {cost:.2f}, at the prices given"] if cost else []
    if author.price.most is not None and cost > author.price.most:
        found.append(
            f"price.most is {author.price.most:g}: the run would stop there, and could go on with a higher one"
        )
    if author.most_tokens is not None and tokens > author.most_tokens:
        found.append(
            f"most_tokens is {author.most_tokens}: the run would stop there, and could go on with a higher one"
        )
    return tuple(found)


def told(author: Author) -> dict[str, object]:
    """What became of an author's requests, for generation.json; nothing for authors that send none."""
    if not isinstance(author, InstructedAuthor):
        return {}
    counts = author.counts
    return {"requests": counts.asked, "unusable": dict(counts.unusable), "tokens": counts.read + counts.written}


def _corpus(params: Params, settings: authors.Corpus, encode: KeptVectors) -> CorpusAuthor:
    texts = [row.text for row in read_public(PUBLIC / "train.parquet")]
    if not params.dataset.labels:
        return CorpusAuthor(settings, texts, encode(texts), {}, params.seed, encode)
    kept = np.load(EMBEDDINGS)
    descriptions = dict(zip(params.dataset.labels, kept["descriptions"], strict=True))
    return CorpusAuthor(settings, texts, kept["texts"], descriptions, params.seed, encode)
