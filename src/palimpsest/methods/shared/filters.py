"""The filters that settings name: free post-processing of written texts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palimpsest.devices import device
from palimpsest.methods.shared import postprocess
from palimpsest.methods.shared.method import Tools
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.lm import load_lm, text_losses
from palimpsest.records.conformity import conforms
from palimpsest.records.duplicates import SHINGLE
from palimpsest.records.record import Record

Losses: TypeAlias = Callable[[Sequence[str]], np.ndarray]


def public_losses(base: Path, max_tokens: int, batch: int) -> Losses:
    """Texts -> mean token loss of each in nats by the public model, which reads so many tokens and texts at once."""
    model, tokenizer = load_lm(base)
    model.to(device())  # type: ignore[arg-type]
    return lambda texts: text_losses(model, tokenizer, texts, max_tokens, batch)


def perplexity(losses: Losses, heldout: Sequence[str], quantile: float) -> postprocess.Perplexity:
    """The perplexity filter under the public model, calibrated on held-out public text."""
    return postprocess.Perplexity(losses, postprocess.perplexity_limit(losses(heldout), quantile))


def public_perplexity(tools: Tools, max_tokens: int, batch: int, quantile: float) -> postprocess.Perplexity:
    """Build the perplexity filter of a method that writes."""
    return perplexity(public_losses(tools.untouched(), max_tokens, batch), tools.heldout(), quantile)


def refuse_perplexity() -> postprocess.Filter:
    """Stands for the perplexity filter of methods whose settings refuse it."""
    raise ValueError("this method has no perplexity filter")


def build_filters(
    wanted: Filters,
    measure: Callable[[], postprocess.Filter] = refuse_perplexity,
    json_schema: Mapping[str, Any] | None = None,
) -> postprocess.FilterChain:
    """Build the filters in order; `measure` makes the perplexity filter, whose model is loaded only if it is wanted.

    With a schema of records, what is no record of it comes first: one that was not whole when its tokens ended.
    """
    made: dict[str, Callable[[], postprocess.Filter]] = {
        "length": lambda: postprocess.LengthFilter(wanted.min_words, wanted.max_words),
        "personal_data": postprocess.PersonalData,
        "duplicates": lambda: postprocess.Duplicates(wanted.similarity, SHINGLE),
        "perplexity": measure,
        "label": lambda: postprocess.Label(wanted.threshold),
    }
    whole = [] if json_schema is None else [postprocess.Structure(conforms(json_schema))]
    return postprocess.FilterChain([*whole, *(made[name]() for name in wanted.chain)])


def apply_filters(removing: postprocess.FilterChain, records: Iterable[Record]) -> list[Record]:
    """The records that all filters keep, where no model judges labels."""
    return [kept.record for kept in removing.apply([postprocess.Candidate(row, math.nan) for row in records])]
