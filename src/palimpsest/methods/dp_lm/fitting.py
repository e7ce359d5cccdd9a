"""Shared by the fits of `dp_lm`: a training's optimiser, and the records of its self-check."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import nn

from palimpsest.methods.dp_lm.settings import DpLmTrain, DpSgd
from palimpsest.models.attention import is_mixture
from palimpsest.privacy.assumptions import BATCH_BITS
from palimpsest.records.record import Probe
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.integers import IntegerEngine
from palimpsest.training.optimiser import Optimiser

HEAD = "head."  # what the names of a discriminator's weights begin with
WEIGHT_DECAY = 0.0  # of AdamW
_PROBE = ("A text.", "A public text, somewhat longer than the first one.", "A long text. ")


def optimiser(settings: DpSgd) -> Optimiser:
    """The optimiser that the settings describe."""
    return Optimiser(
        learning_rate=settings.learning_rate,
        final_learning_rate_share=1.0 if settings.schedule == "constant" else 0.0,
        betas=settings.betas,
        eps=settings.adam_eps,
        weight_decay=WEIGHT_DECAY,
        warmup_share=settings.warmup,
        noise_correction=settings.noise_correction,
    )


def optimiser_of(settings: DpLmTrain) -> Optimiser:
    """Return a language model's optimiser; its discriminator may have its own learning rate (paper, Algorithm 1).

    Where the losses are clipped separately, that rate applies to all steps of the second loss; else to the head's
    weights.
    """
    wanted, one = settings.discriminator_learning_rate, optimiser(settings)
    if wanted is None:
        return one
    return replace(one, share=partial(_share, wanted / settings.learning_rate, settings.clipping == "separate"))


def _share(own: float, separate: bool, which: int, name: str) -> float:
    return own if (which == 1 if separate else name.startswith(HEAD)) else 1.0


def engine_of(model: nn.Module) -> type[BookkeepingEngine]:
    """Return the engine for a model: float64 sums for a mixture of experts, where an example's bits hang on others'."""
    return BookkeepingEngine if is_mixture(model) else IntegerEngine


def list_assumptions(query: TrainQuery) -> tuple[str, ...]:
    """Return the ids of `privacy.assumptions` that a training relies on; no private row decides.

    Raises:
        EngineError, DeviceNoiseError: see `TrainQuery.check`.
    """
    query.check()
    return (BATCH_BITS,) if is_mixture(query.model) or not query.batch_bits() else ()


def shapes(names: Sequence[str], max_tokens: int, cells: Sequence[str] = ("",)) -> tuple[Probe, ...]:
    """Return public records of every length with every label, so that there are two of every padded width.

    Two of each length have the same words in another order, so equally many tokens. The longest are cut to
    `max_tokens`. Each comes with each of some `cells`, where records have fields.
    """
    endings, labels = ("", "I a ", "a I "), names or (None,)
    lengths = [(many, own) for own in cells for many in range(max_tokens + 2)]
    return tuple(Probe("a " * many + end, label, own) for many, own in lengths for label in labels for end in endings)


def probe(names: Sequence[str], max_tokens: int, cells: str = "") -> tuple[Probe, ...]:
    """Three public records of different lengths, the last one as long as a row can be."""
    short, middle, repeated = _PROBE
    labels = (names[0], names[-1], names[0]) if names else (None, None, None)
    texts = (short, middle, repeated * max_tokens)
    return tuple(Probe(text, label, cells) for text, label in zip(texts, labels, strict=True))
