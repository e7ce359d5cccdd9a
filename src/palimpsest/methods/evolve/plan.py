"""What `evolve` asks and costs, and what its author is expected to read and write; no row is read."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.evolve.authors import Author
from palimpsest.methods.evolve.instructed import expected_calls
from palimpsest.methods.evolve.settings import EvolveSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import planned_means
from palimpsest.methods.shared.noise import gaussian
from palimpsest.methods.shared.shares import planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.records.schema import PublicSchema

ROUNDS = "vote rounds"
_MARGIN = 1.0 + 1e-9  # what rounding may add up to
_FAINT = 1.0  # votes of an average candidate, in standard deviations of its noise


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a plan's noise, in units of one unit of privacy; 0 for a reference.

    Attributes:
        votes: of each round's counts.
        means: of the class means' coordinates; None where they are not asked for.
    """

    votes: float
    means: float | None


def plan(settings: EvolveSettings, schema: PublicSchema, budget: Budget, author: Author | None = None) -> Plan:
    """What a fit will ask and cost, and whether that can work.

    Args:
        budget: what may be spent.
        author: who writes; None leaves out what that one is expected to read and write.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    require_fit(settings, schema)
    histogram, noise = costs_of(settings, schema, budget)
    means = [] if noise.means is None else [planned_means(noise.means)]
    rounds = PlannedQuery(ROUNDS, rounds_event(noise.votes, settings.rounds), settings.rounds)
    expected = {} if author is None else _expected(author, settings, schema)
    told = () if author is None else tuple(_warnings(author, expected))
    return Plan(
        "evolve",
        budget,
        (*planned_query(histogram), *means, rounds),
        {**_numbers(settings, schema, noise), **expected},
        notes=(*notes(settings, schema, noise), *told),
    )


def costs_of(settings: EvolveSettings, schema: PublicSchema, budget: Budget) -> tuple[LabelHistogram | None, Noise]:
    """The histogram, and the noise of class means and votes that the budget leaves; see `Evolve` for the theorem."""
    wanted, rounds = settings.class_means, settings.rounds
    histogram = planned_histogram(settings, schema, whole_rho(budget))
    if math.isinf(budget.epsilon):
        return histogram, Noise(0.0, None if wanted is None else 0.0)
    whole = gdp_sigma(budget.epsilon, budget.delta) * _MARGIN
    means = whole / math.sqrt(wanted.share) if wanted else None
    before = [*([] if histogram is None else [histogram.event()]), *([] if means is None else [gaussian(means)])]
    if not before:
        return None, Noise(whole * math.sqrt(rounds), None)

    def asked(sigma: float) -> DpEvent:
        return ComposedDpEvent([*before, rounds_event(sigma, rounds)])

    return histogram, Noise(calibrate_noise(asked, budget.epsilon, budget.delta), means)


def _numbers(settings: EvolveSettings, schema: PublicSchema, noise: Noise) -> dict[str, float | int | str]:
    numbers: dict[str, float | int | str] = {
        "sigma": noise.votes,
        "rounds": settings.rounds,
        "rows": settings.rows,
        "candidates": settings.rows * settings.expand,
        "neighbours": settings.votes.neighbours,
        "votes_each": votes_each(settings, schema),
        "new_texts": writings(settings)[0],
        "variations": writings(settings)[1],
    }
    return numbers if noise.means is None else {**numbers, "means_sigma": noise.means}


def _expected(author: Author, settings: EvolveSettings, schema: PublicSchema) -> dict[str, float | int | str]:
    """What the author will be asked, about: requests, tokens and their price."""
    if not isinstance(author, LocalChatSettings | Endpoint):
        return {}
    calls = expected_calls(author, schema.labels, *writings(settings))
    numbers: dict[str, float | int | str] = {"requests": calls.requests, "tokens": calls.read + calls.written}
    return {**numbers, "cost": calls.cost(author.price)} if isinstance(author, Endpoint) else numbers


def _warnings(author: Author, numbers: Mapping[str, float | int | str]) -> Iterator[str]:
    """What the plan says of the money that the author costs, and of limits that it would reach."""
    if not isinstance(author, Endpoint):
        return
    cost, tokens = float(numbers["cost"]), int(numbers["tokens"])
    if cost:
        yield f"the author will cost about {cost:.2f}, at the prices given"
    if author.price.most is not None and cost > author.price.most:
        yield f"price.most is {author.price.most:g}: the run would stop there, and could go on with a higher one"
    if author.most_tokens is not None and tokens > author.most_tokens:
        yield f"most_tokens is {author.most_tokens}: the run would stop there, and could go on with a higher one"


def rounds_event(sigma: float, rounds: int) -> DpEvent:
    """What so many rounds of votes cost."""
    return SelfComposedDpEvent(gaussian(sigma), rounds)


def writings(settings: EvolveSettings) -> tuple[int, int]:
    """New texts and variations that an author is asked for over a whole run."""
    first, pool = (settings.class_means.first, settings.class_means.pool) if settings.class_means else (1, 1)
    varied = settings.rounds * settings.rows * (settings.expand - 1)
    ahead = settings.rounds * settings.rows * settings.expand * settings.look_ahead
    return first * settings.rows, pool * varied + ahead


def votes_each(settings: EvolveSettings, schema: PublicSchema) -> float:
    """The votes of an average candidate in a round, in whole votes of a unit."""
    return schema.n_units * math.sqrt(settings.votes.neighbours) / (settings.rows * settings.expand)


def notes(settings: EvolveSettings, schema: PublicSchema, noise: Noise) -> Iterator[str]:
    """What the user should know before anything is spent."""
    each = votes_each(settings, schema)
    if each < _FAINT * noise.votes:
        wanted = math.ceil(settings.votes.neighbours * (noise.votes / each) ** 2)
        yield (
            f"an average candidate gets {each:.2g} votes and noise of {noise.votes:.3g}: raise votes.neighbours "
            f"towards {wanted}, or ask for fewer rows, fewer rounds or a smaller expand; class_means needs far less"
        )
    if settings.expand == 1 and settings.rounds > 1:
        yield "expand 1 makes no variations: every round votes for the same texts"


def require_fit(settings: EvolveSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if schema.task == "span":
        raise ParamsError("Method evolve does not write a free label.", "Use method predict for task span.")
    if settings.class_means is not None and len(schema.label_names) < 2:
        raise ParamsError("evolve.class_means needs two labels or more.", "Set it to null.")
    require_prior(settings.prior, schema)
    if settings.rows < max(1, len(schema.label_names)):
        raise ParamsError(
            f"evolve.rows is {settings.rows}, fewer than the {len(schema.label_names)} labels.", "Ask for more rows."
        )
