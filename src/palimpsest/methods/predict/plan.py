"""The queries of `predict` and their cost; no row is read."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from palimpsest.errors import ParamsError
from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.shared.base import Budget, Plan, foretell_written
from palimpsest.methods.shared.means import planned_means
from palimpsest.methods.shared.shares import (
    divide_total,
    note_counts,
    planned_histogram,
    planned_query,
    require_means,
    require_prior,
    whole_rho,
)
from palimpsest.prediction.cells import part
from palimpsest.prediction.mechanism import (
    EXACT,
    Clipping,
    DifferenceClipping,
    FixedClipping,
    Rounding,
    SparseVector,
    token_rho,
    wave_event,
)
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.records.schema import PublicSchema

UNCLIPPED = 1e4  # of a reference run: no difference of logits is as large
_LITTLE = 0.1  # nats by which all contexts together can then move a draw at most
_MARGIN = 1.0 - 1e-9  # what the last steps in float64, from exact sums to scores, may add up to
_SPOILT = 0.5  # share of a token's rho that rounding may take


@dataclass(frozen=True)
class Spending:
    """The spending of each batch: r private tokens (`tokens`, 0 where none is affordable) at the clip c or C."""

    tokens: int
    clip: float


@dataclass(frozen=True)
class PredictCosts:
    """The division of a budget.

    Attributes:
        histogram: the label histogram; None where shares are public.
        means: standard deviation of the class means' coordinates; None where they are not asked for.
        rho: the rho left for each batch; infinite for a reference.
        rounding: the charge for rounding: contexts of all batches of a wave are read together.
    """

    histogram: LabelHistogram | None
    means: float | None
    rho: float
    rounding: Rounding


def plan(settings: PredictSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan the queries of a fit, their cost, and whether it is feasible.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    _require_fit(settings, schema)
    costs = costs_of(settings, schema, budget)
    spending = spend(settings, costs.rho, costs.rounding)
    numbers = _numbers(settings, schema, spending, costs.histogram)
    if reason := _refusal(settings, costs.rho, costs.rounding):
        return Plan("predict", budget, (), numbers, False, (reason,))
    clipping, vector = mechanisms(settings, spending.clip)
    event = wave_event(clipping, vector, spending.tokens, math.isinf(costs.rho), costs.rounding)
    asked = [
        PlannedQuery(wave_name(number), event, spending.tokens, part(*wave), versions=versions_of("wave"))
        for number, wave in enumerate(waves(settings, schema))
    ]
    means = [] if costs.means is None else [planned_means(costs.means)]
    queries = (*planned_query(costs.histogram), *means, *asked)
    told = (
        *notes(settings, spending),
        *_explain_too_few(settings, schema, budget),
        *note_counts(costs.histogram, schema),
    )
    foretold = () if costs.means is None else (foretell_written(schema, costs.means),)
    return Plan("predict", budget, queries, numbers, notes=told, foretold=foretold)


def costs_of(settings: PredictSettings, schema: PublicSchema, budget: Budget) -> PredictCosts:
    """Divide the budget: class means get their share of rho, which buys rho_m = 1 / (2 sigma^2)."""
    rho, wanted, sigma = whole_rho(budget), settings.class_means, None
    histogram = planned_histogram(settings, schema, rho)
    taken = settings.histogram_share if histogram is not None else 0.0
    if wanted is not None:
        taken += wanted.share
        sigma = 0.0 if math.isinf(rho) else math.sqrt(0.5 / (wanted.share * rho * _MARGIN))
    together = max(last - first for first, last in waves(settings, schema))
    return PredictCosts(histogram, sigma, rho * (1.0 - taken), Rounding(settings.rounding or 0.0, together))


def contexts_of(settings: PredictSettings, schema: PublicSchema) -> int:
    """Most private contexts that a batch is expected to hold: a person may have several."""
    return settings.batch_size * (schema.max_rows_per_unit if schema.unit == "person" else 1)


def batches(settings: PredictSettings, schema: PublicSchema) -> tuple[int, int]:
    """Batches that records or persons are spread over, and those that are written from."""
    all_of_them = max(len(schema.label_names), 1, schema.n_units // settings.batch_size)
    return all_of_them, min(all_of_them, settings.batches or all_of_them)


def waves(settings: PredictSettings, schema: PublicSchema) -> list[tuple[int, int]]:
    """First batch and end of each wave."""
    _, used = batches(settings, schema)
    size = max(1, settings.together // contexts_of(settings, schema))
    return [(first, min(first + size, used)) for first in range(0, used, size)]


def wave_name(number: int) -> str:
    """The charge's name."""
    return f"predict wave {number}"


def _numbers(
    settings: PredictSettings, schema: PublicSchema, spending: Spending, histogram: LabelHistogram | None
) -> dict[str, float | int | str]:
    everywhere, used = batches(settings, schema)
    contexts = used * (contexts_of(settings, schema) + 1)
    numbers: dict[str, float | int | str] = {
        "clipping": settings.clipping,
        "clip": spending.clip,
        "tokens": spending.tokens,
        "batches": used,
        "batches_in_all": everywhere,
        "batch_size": settings.batch_size,
        "waves": len(waves(settings, schema)),
        "expected_examples": examples(used, spending.tokens, settings.typical_tokens),
        "forward_tokens": contexts * (settings.prompt.text_tokens + spending.tokens),
    }
    numbers |= {} if histogram is None else {"histogram_sigma": histogram.sigma}
    return numbers if settings.rounding is None else {**numbers, "rounding": settings.rounding}


def examples(batches: int, tokens: int, typical: int) -> int:
    """About how many examples these batches write, of so many private tokens each and so many in an example."""
    return batches * tokens // typical


def _explain_too_few(settings: PredictSettings, schema: PublicSchema, budget: Budget) -> Iterator[str]:
    """Name the batch size that would write the wanted number of examples, where this one does not."""
    expected = _estimate_examples(settings, schema, budget)
    if settings.rows is None or expected >= settings.rows or math.isinf(budget.epsilon):
        return
    size = size_for(settings, schema, budget, settings.rows)
    lever = ("tokens" if settings.clip is None else "epsilon") + (" or batches" if settings.batches else "")
    advice = f"no batch_size would write them, raise {lever}" if size is None else f"batch_size {size} would write them"
    yield f"{settings.rows} examples are wanted, and batch_size {settings.batch_size} writes about {expected}: {advice}"


def size_for(settings: PredictSettings, schema: PublicSchema, budget: Budget, wanted: int) -> int | None:
    """A batch size that is expected to write as many examples as are wanted, before filters; None where none is.

    At a fixed clip a batch may draw more tokens the larger it is, so this is the smallest that will do. At a fixed
    number of tokens more come of more batches, so it is the largest, which leaves the widest clip.
    """
    sizes = range(1, max(1, schema.n_units // max(1, len(schema.label_names))) + 1)

    def enough(size: int) -> bool:
        return _estimate_examples(_resize_batches(settings, size), schema, budget) >= wanted

    def short(size: int) -> bool:
        used = batches(_resize_batches(settings, size), schema)[1]
        return examples(used, settings.tokens or 0, settings.typical_tokens) < wanted

    place = bisect_left(sizes, True, key=short) - 1 if settings.clip is None else bisect_left(sizes, True, key=enough)
    return sizes[place] if 0 <= place < len(sizes) and enough(sizes[place]) else None


def _resize_batches(settings: PredictSettings, size: int) -> PredictSettings:
    return settings.model_copy(update={"batch_size": size})


def _estimate_examples(settings: PredictSettings, schema: PublicSchema, budget: Budget) -> int:
    costs = costs_of(settings, schema, budget)
    tokens = spend(settings, costs.rho, costs.rounding).tokens
    return examples(batches(settings, schema)[1], tokens, settings.typical_tokens)


def spend(settings: PredictSettings, rho: float, rounding: Rounding = EXACT) -> Spending:
    """The tokens that a clip leaves of a batch's rho, or the clip that a number of tokens leaves.

    rho = r [1/2 (c / (s tau))^2 + 2 / (s nu)^2], the second part with a sparse vector only; `token_rho` says what
    rounding adds.
    """
    if math.isinf(rho):
        return Spending(settings.tokens or settings.typical_tokens, UNCLIPPED)
    clipping, vector = mechanisms(settings, settings.clip or 1.0)
    each, usable = token_rho(clipping, vector, rounding), rho * _MARGIN
    if settings.clip is not None:
        return Spending(int(usable / each), settings.clip)
    tokens = settings.tokens or 1
    left = usable / tokens - (each - clipping.rho_of(clipping.sensitivity + rounding.error))
    move = settings.temperature * math.sqrt(2.0 * max(left, 0.0)) - rounding.error
    return Spending(tokens, settings.batch_size * move) if move > 0.0 else Spending(0, 0.0)


def mechanisms(settings: PredictSettings, clip: float) -> tuple[Clipping, SparseVector | None]:
    """The token mechanism and the sparse vector of these settings, at a clip."""
    size, chosen = settings.batch_size, settings.sparse_vector
    vector = SparseVector(chosen.threshold, chosen.noise, size) if chosen else None
    if settings.clipping == "fixed":
        return FixedClipping(clip, settings.temperature, size, settings.top_k), vector
    return DifferenceClipping(clip, settings.temperature, size, settings.top_k), vector


def break_even(settings: PredictSettings, clip: float) -> float:
    """The share of private tokens below which a sparse vector pays.

    With it r falls to rho / (rho_token + rho_round), and each private token brings 1 / share tokens along.
    """
    clipping, vector = mechanisms(settings, clip)
    return clipping.rho / (clipping.rho + vector.rho) if vector else 0.0


def notes(settings: PredictSettings, spending: Spending) -> Iterator[str]:
    """Yield notes for the user, before anything is spent."""
    if spending.tokens < settings.typical_tokens:
        yield (
            f"each batch may draw {spending.tokens} private tokens, fewer than a typical example has "
            f"({settings.typical_tokens}): raise batch_size, or lower the clip"
        )
    if settings.sparse_vector:
        share = break_even(settings, spending.clip)
        yield (
            f"the sparse vector pays only while fewer than {share:.1%} of the tokens are private; free text is far "
            "above that, structured text may be below: compare with sparse_vector null"
        )
    clip, reach = spending.clip, spending.clip / settings.temperature
    if settings.clipping == "difference" and reach < _LITTLE:
        yield (
            f"clip {clip:.3g} moves a draw by at most {reach:.2g} nats: the text is nearly what the public prompt "
            "gives; raise batch_size or epsilon, or lower tokens"
        )


def _refusal(settings: PredictSettings, rho: float, rounding: Rounding) -> str | None:
    """Explain why the plan cannot work and what to do instead; None where it can work."""
    if not spend(settings, rho).tokens:
        return _explain_too_little(settings, rho)
    spending = spend(settings, rho, rounding)
    if math.isinf(rho) or (spending.tokens and _rounding_share(settings, spending, rounding) <= _SPOILT):
        return None
    return (
        f"infeasible: rounding of {rounding.error:.3g} nats, charged for {rounding.batches} batches together, takes "
        f"more than {_SPOILT:.0%} of a batch's budget: lower together, or use a device that keeps a context's bits and "
        "set rounding to null"
    )


def _rounding_share(settings: PredictSettings, spending: Spending, rounding: Rounding) -> float:
    """The share of a token's rho that rounding takes."""
    clipping, vector = mechanisms(settings, spending.clip)
    return 1.0 - token_rho(clipping, vector) / token_rho(clipping, vector, rounding)


def _explain_too_little(settings: PredictSettings, rho: float) -> str:
    """Explain that no token is affordable, and name the batch size that would pay for a typical example."""
    clipping, vector = mechanisms(settings, settings.clip or settings.temperature)
    passing = vector.rho if vector else 0.0
    if settings.clip is None:
        token, wanted = passing * (settings.tokens or 1), 1
    else:
        token, wanted = clipping.rho + passing, settings.typical_tokens
    size = math.ceil(settings.batch_size * math.sqrt(token * wanted / rho))
    return (
        f"infeasible: a batch has rho {rho:.3g}, and what it must pay first costs {token:.3g} at batch_size "
        f"{settings.batch_size}: raise batch_size above {size}, raise epsilon, or lower the clip"
    )


def divide_at_least_one(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """`total` split by shares after each label got one."""
    rest = divide_total(max(0, total - len(shares)), shares)
    return {label: 1 + count for label, count in rest.items()}


def _require_fit(settings: PredictSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    require_prior(settings.prior, schema)
    require_means("predict", settings.class_means, schema)
    if settings.batches is not None and settings.batches < len(schema.label_names):
        raise ParamsError(
            f"predict.batches is {settings.batches}, fewer than the {len(schema.label_names)} labels.",
            "Give each label one batch or more, or null for all.",
        )
