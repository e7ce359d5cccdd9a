"""What the fits of `dp_lm` share: a training's public numbers, its optimiser, and the records of its self-check."""

from collections.abc import Sequence

from palimpsest.errors import ParamsError
from palimpsest.methods.dp_lm.settings import DpSgd
from palimpsest.privacy.assumptions import BATCH_BITS
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from palimpsest.training.rounding import eta

_PROBE = ("A text.", "A public text, somewhat longer than the first one.", "A long text. ")


def training_plan(
    settings: DpSgd, schema: PublicSchema, noise: float, clipping: str = "joint", losses: int = 1
) -> TrainingPlan:
    """The plan of a training over `settings.epochs` expected passes.

    Raises:
        ParamsError: the expected batch is larger than the public size of the data set.
    """
    if settings.batch > schema.n_units:
        raise ParamsError(
            f"The expected batch size {settings.batch} is larger than the {schema.n_units} {schema.unit}s declared.",
            "Lower `batch`.",
        )
    rate = settings.batch / schema.n_units
    return TrainingPlan(
        rate=rate,
        steps=max(1, round(settings.epochs / rate)),
        clipping_norm=settings.clipping_norm,
        noise_multiplier=noise,
        divisor=float(settings.batch),
        clipping=clipping,
        losses=losses,
        eta=eta(settings.batch),
    )


def shown(plan: TrainingPlan) -> dict[str, float | int | str]:
    """The numbers of a plan that are worth printing."""
    return {
        "noise_multiplier": plan.noise_multiplier,
        "clipping": plan.clipping,
        "clipping_norm": plan.clipping_norm,
        "sampling_rate": plan.rate,
        "steps": plan.steps,
        "expected_batch": plan.divisor,
    }


def optimiser(settings: DpSgd) -> Optimiser:
    """The optimiser that the settings describe."""
    return Optimiser(
        learning_rate=settings.learning_rate,
        final_learning_rate_share=1.0 if settings.schedule == "constant" else 0.0,
        betas=settings.betas,
        eps=settings.adam_eps,
        weight_decay=settings.weight_decay,
        warmup_share=settings.warmup,
        noise_correction=settings.noise_correction,
    )


def assumed(query: TrainQuery) -> tuple[str, ...]:
    """What a training has to assume of this machine, ids of `privacy.assumptions`; no private row decides."""
    return () if query.batch_bits() else (BATCH_BITS,)


def shapes(names: Sequence[str], max_tokens: int) -> tuple[Record, ...]:
    """Public records of every length, two of each label in turn, so that there are two for every padded width."""
    labels = names or (None,)
    return tuple(Record("a " * length, labels[length % len(labels)]) for length in range(max_tokens + 1))


def probe(names: Sequence[str], max_tokens: int) -> tuple[Record, ...]:
    """Three public records of different lengths, the last one as long as a row can be."""
    short, middle, repeated = _PROBE
    labels = (names[0], names[-1], names[0]) if names else (None, None, None)
    texts = (short, middle, repeated * max_tokens)
    return tuple(Record(text, label) for text, label in zip(texts, labels, strict=True))
