"""Writes the epsilon 0 row of the public language model: its texts behind public prompts, with no private row read."""

import math

from palimpsest.errors import ParamsError
from palimpsest.methods.evolve.authors import Base
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.shared.filters import apply_filters
from palimpsest.params.load import load
from palimpsest.params.schema import PublicLm
from palimpsest.records.record import Record
from palimpsest.records.write import shuffle_rows, write_synthetic
from palimpsest.workspace import BASE_LM, PUBLIC_LM, SYNTHETIC
from stages.common import start
from stages.filters import chain
from stages.public_only import split_evenly

_SPARE = 1.25  # texts written for each row, as filters take some


def run() -> None:
    """models/base -> data/synthetic/public_lm.jsonl, .parquet; fewer rows than asked where filters take many.

    Guarantee: epsilon 0; the model, its prompts and the filters are public.
    """
    params = load()
    settings, labels = params.public_lm, params.dataset.labels
    if settings is None:
        raise ParamsError("public_lm is null in params.yaml.", "Fill it in, or leave this stage out.")
    counts = split_evenly(params.public_only.rows, tuple(labels) or ("",))
    asked = prompt_author(settings)
    author = BaseAuthor(asked, BASE_LM, params.seed, labels=labels, json_schema=params.dataset.json_schema)
    removing = chain(params, settings.filters, settings.max_tokens, settings.batch)
    texts = author.random({label: math.ceil(_SPARE * count) for label, count in counts.items()})
    kept = apply_filters(removing, texts)
    write_synthetic(
        shuffle_rows(take_first(kept, counts)), SYNTHETIC / PUBLIC_LM, params.dataset.text, params.dataset.label
    )


def prompt_author(settings: PublicLm) -> Base:
    """Return the author that writes behind only the prompt."""
    told = settings.model_dump(include={"prompt", "ends", "temperature", "top_p", "max_tokens", "batch", "precision"})
    return Base(kind="base", start="prompt", **told)


def take_first(rows: list[Record], counts: dict[str, int]) -> list[Record]:
    """Return the first rows of each label, as many as `counts` says."""
    own = {label: [row for row in rows if (row.label or "") == label] for label in counts}
    return [row for label, count in counts.items() for row in own[label][:count]]


if __name__ == "__main__":
    start(run)
