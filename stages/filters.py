"""The filters that a variant names: free post-processing of written texts, measured by the public model."""

from palimpsest.methods.shared import filters, postprocess
from palimpsest.methods.shared.settings import Filters
from palimpsest.params.schema import Params
from stages.public import heldout_texts


def chain(params: Params, wanted: Filters, max_tokens: int, batch: int) -> postprocess.FilterChain:
    """Make the filters, in order, after the one of records by the schema, where there is one.

    The perplexity filter reads `max_tokens` of a text, and `batch` texts at once.
    """
    return filters.build_filters(
        wanted,
        lambda: filters.perplexity(public_losses(params, max_tokens, batch), heldout_texts(), wanted.quantile),
        params.dataset.json_schema,
    )


def public_losses(params: Params, max_tokens: int, batch: int) -> filters.Losses:
    """Return a function from texts to the mean token loss of each, in nats, by the public model."""
    return filters.public_losses(params.untouched, max_tokens, batch)


def heldout_limit(losses: filters.Losses, quantile: float) -> float:
    """Return the loss that this share of the held-out public texts does not exceed."""
    return postprocess.perplexity_limit(losses(heldout_texts()), quantile)
