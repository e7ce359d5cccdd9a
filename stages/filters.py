"""The filters that a variant names: free post-processing of written texts."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from palimpsest.methods.shared import postprocess
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.lm import load_lm, text_losses
from palimpsest.records.write import read_public
from palimpsest.workspace import BASE_LM, PUBLIC

Losses: TypeAlias = Callable[[Sequence[str]], np.ndarray]


def chain(wanted: Filters, max_tokens: int, batch: int) -> postprocess.Chain:
    """The filters, in their order.

    Args:
        wanted: their names and settings.
        max_tokens: tokens that the perplexity filter reads of a text.
        batch: texts that it reads at once.
    """
    made: dict[str, Callable[[], postprocess.Filter]] = {
        "length": lambda: postprocess.Length(wanted.min_words, wanted.max_words),
        "personal_data": postprocess.PersonalData,
        "duplicates": lambda: postprocess.Duplicates(wanted.similarity, wanted.shingle),
        "perplexity": lambda: perplexity(wanted.quantile, max_tokens, batch),
        "label": lambda: postprocess.Label(wanted.threshold),
    }
    return postprocess.Chain([made[name]() for name in wanted.chain])


def perplexity(quantile: float, max_tokens: int, batch: int) -> postprocess.Perplexity:
    """The filter under the public model, with held-out public text as its measure."""
    losses = public_losses(max_tokens, batch)
    return postprocess.Perplexity(losses, heldout_limit(losses, quantile))


def public_losses(max_tokens: int, batch: int) -> Losses:
    """Texts -> mean token loss of each in nats by the public model."""
    model, tokenizer = load_lm(BASE_LM)
    return lambda texts: text_losses(model, tokenizer, texts, max_tokens, batch)


def heldout_limit(losses: Losses, quantile: float) -> float:
    """The loss that this share of the held-out public texts does not exceed."""
    heldout = [row.text for row in read_public(PUBLIC / "heldout.parquet")]
    return postprocess.perplexity_limit(losses(heldout), quantile)
