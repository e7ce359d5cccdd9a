"""The ledger's values and their hashes: an asset and its terms, a run, its charges, and what is spent.

The owner's word for a second charge of one variant stands in the environment of the process that reserves it.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import dp_accounting.dp_event as dpa

from palimpsest import validate
from palimpsest.errors import LedgerError
from palimpsest.privacy import accounting
from palimpsest.privacy.gaussian_share import Share
from palimpsest.privacy.planned import ADJACENCY, Versions, true_cost

UNITS = ("record", "person")
FILTERS = ("renyi", "gdp")
FILTER_ORDERS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
PURPOSES = ("release", "reference")
_COUNTED = ("reserved", "begun", "answered", "committed")
_UP = 1.0 + 1e-9  # more than what adding squares and inverting a profile round
_GAUSSIAN_DELTA = 0.9  # of delta: the rest is for covers and for deltas that no event carries
_LOOKED = ("begun", "answered", "committed")
_MOST_MILESTONES = 3  # each takes a part of delta from the others
STATES = (*_COUNTED, "refunded")
CONSENT = "PALIMPSEST_CHARGE_AGAIN"  # of the environment: the word is a person's, and no setting
_DIGITS = 12


def canonical_json(body: Mapping[str, Any]) -> str:
    """Return the one text that stands for this content."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(text: str) -> str:
    """Return the digest by which the chain refers to a text stored beside it: an asset's key, a stored answer."""
    return hashlib.sha256(text.encode()).hexdigest()


class _Move(NamedTuple):
    """A state change that an entry makes to a charge: the states it may follow, and the state it leaves."""

    before: tuple[str, ...]
    after: str


MOVES: Mapping[str, _Move] = {
    "reserve": _Move((), "reserved"),
    "begin": _Move(("reserved",), "begun"),
    "advance": _Move(("begun",), "begun"),
    "answer": _Move(("begun",), "answered"),
    "commit": _Move(("begun", "answered"), "committed"),
    "refund": _Move(("reserved",), "refunded"),
}


class Protected(Protocol):
    """An asset or a public schema: something that names the unit of privacy of a data set."""

    @property
    def unit(self) -> str:
        """The unit: record or person."""

    @property
    def unit_column(self) -> str | None:
        """The column that names the person; None where the unit is a record."""


@dataclass(frozen=True)
class Asset:
    """A private data set as the ledger knows it; everything but `key` is public.

    A charge holds for the unit and the column that it was made under. So neither ever changes. How many rows of a
    person are kept may change, because a charge bounds a person whatever rows they have.

    Attributes:
        delta: the one delta of every release and of the total.
        epsilon: the budget: the cap on the total epsilon at `delta`.
        n_public: the declared number of units of privacy, records or persons.
        unit: what one adjacency step adds or removes: "record" or "person".
        unit_column: the column whose exact value is a person; None where the unit is one record.
        adjacency: "add_remove".
        teams: the caps of the teams that share it, each on the total of its team's charges; if empty, no team is asked.
        filter: what the total is counted in, fixed at registration: "renyi" (divergences) or "gdp" (Gaussian DP).
        orders: the Renyi orders of the filter "renyi", fixed at registration.
        milestones: epsilons below the cap, ascending, fixed at registration; see `total`. For "gdp" only.
        key: 32 secret bytes for keyed hashes of this asset's rows.
        after_loss: an earlier ledger of this data set is lost: what it spent is in no total.
    """

    name: str
    delta: float
    epsilon: float
    n_public: int
    unit: str = "record"
    adjacency: str = ADJACENCY
    orders: tuple[float, ...] = FILTER_ORDERS
    key: bytes = field(default=b"", repr=False)
    after_loss: bool = False
    unit_column: str | None = None
    filter: str = "renyi"
    teams: tuple[tuple[str, float], ...] = ()
    milestones: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an unknown unit, a person without a column and a column without a person."""
        validate.require_one_of(UNITS, unit=self.unit)
        validate.require_one_of(FILTERS, filter=self.filter)
        if (self.unit == "person") != isinstance(self.unit_column, str):
            raise ValueError("an asset of persons names the column that says who they are, and no other does")

    def require_possible(self) -> None:
        """Raise ValueError for terms that no data set can be registered on."""
        validate.require_positive(delta=self.delta, epsilon=self.epsilon, n_public=self.n_public)
        validate.require_in_range(0.0, 1.0, delta=self.delta)
        validate.require_one_of((ADJACENCY,), adjacency=self.adjacency)
        if (problem := milestone_problem(self.milestones, self.filter)) is not None:
            raise ValueError(problem)

    @property
    def filter_delta(self) -> float:
        """The part of delta at which the filter's total becomes an epsilon: half of it, or nine tenths."""
        return self.delta * (_GAUSSIAN_DELTA if self.filter == "gdp" else 0.5)

    @property
    def beside_delta(self) -> float:
        """The rest of delta: for deltas that no event carries, and those beside which a Gaussian covers a charge."""
        return self.delta - self.filter_delta

    def implied_epsilons(self, divergences: Sequence[float]) -> list[float]:
        """Return the epsilon that each order's summed Renyi divergence implies at its share of `filter_delta`."""
        share = self.filter_delta / len(self.orders)
        pairs = zip(self.orders, divergences, strict=True)
        return [accounting.renyi_epsilon(order, divergence, share) for order, divergence in pairs]

    def spent(self, used: Sequence[float]) -> float:
        """Return the epsilon that the filter's sums imply: of Renyi divergences, one per order, or of mu^2."""
        if not any(used):
            return 0.0
        if self.filter == "renyi":
            return min(self.implied_epsilons(used))
        (squares,) = used
        return accounting.gdp_epsilon(math.sqrt(squares) * _UP, self.filter_delta) if squares < math.inf else math.inf


def milestone_problem(milestones: Sequence[float], counted: str, cap: float = math.inf) -> str | None:
    """Return why no data set with that filter and that first cap can have these milestones; None where one can."""
    if not milestones:
        return None
    if counted != "gdp":
        return "milestones belong to the filter gdp; with renyi the total is proved where it stands"
    rising = all(low < high for low, high in zip((0.0, *milestones), milestones, strict=False))
    if not rising or len(milestones) > _MOST_MILESTONES or milestones[-1] >= cap:
        return (
            f"milestones are at most {_MOST_MILESTONES} epsilons below the cap, each above 0 and above the one before"
        )
    return None


def require_unit(known: Asset, wanted: Protected) -> None:
    """Raise LedgerError where a data set was registered for another unit of privacy: its charges bound only that one.

    Guarantee: no asset ever holds charges of two units, so that its total is of one.
    """
    if (known.unit, known.unit_column) != (wanted.unit, wanted.unit_column):
        raise LedgerError(
            f"Asset {known.name!r} is registered for {_unit_of(known)} as the unit of privacy; what is asked for is "
            f"{_unit_of(wanted)}.",
            "What was charged holds for the one and not for the other, so the asset is closed to another unit. Restore "
            "dataset.unit, or take another name for the data set: what was released before then counts beside it. If "
            "nothing was charged yet, `palimpsest register` corrects the unit.",
        )


def _unit_of(protected: Protected) -> str:
    column = protected.unit_column
    return f"one {protected.unit}" if column is None else f"the {protected.unit} in column {column!r}"


@dataclass(frozen=True)
class Cap:
    """A cap on an asset's total epsilon, and when it was set."""

    epsilon: float
    time: str


@dataclass(frozen=True)
class Run:
    """A plan bound to its rows, so that a retry is recognised as one, whatever version of palimpsest makes it.

    Attributes:
        purpose: "release", or "reference" for output that stays in the private zone and outside the total.
        fingerprint: keyed hash of the rows that it reads; see `records.keyed.fingerprint`.
        plan: digest of the settings that differ from their defaults, and of the queries with their declared versions.
    """

    stage: str
    variant: str
    purpose: str
    fingerprint: str
    plan: str

    @property
    def key(self) -> str:
        """The idempotency key."""
        return digest_of(canonical_json(asdict(self)))


@dataclass(frozen=True)
class Charge:
    """One query's charge and where it stands."""

    id: str
    seq: int
    run_key: str
    run: int
    index: int
    stage: str
    variant: str
    purpose: str
    fingerprint: str
    query: str
    event: dpa.DpEvent
    own_delta: float
    partition: tuple[str, str] | None
    state: str
    time: str
    noise_fixed: bool = False
    steps: int | None = None  # how many it pays for; None where the query runs at once
    steps_begun: int = 0
    answer_hash: str | None = None
    share: Share | None = None  # what it takes of a Gaussian budget, fixed when it was reserved
    team: str | None = None  # the team whose share of the asset it counts in
    subject: str | None = None  # digest of what it was asked about, once it began
    versions: Versions = ()
    asset: str = ""  # the name that it was charged under; "" in an extract

    @property
    def counted(self) -> bool:
        """Whether it counts against the budget: standing reservations do, references and refunds do not."""
        return self.purpose == "release" and self.state in _COUNTED

    @property
    def cost(self) -> dpa.DpEvent:
        """The real cost: its event, unless a version of what it asked was withdrawn."""
        return true_cost(self.event, self.versions)

    @property
    def looked(self) -> bool:
        """Whether its query began, and so may have looked at the rows."""
        return self.state in _LOOKED


@dataclass(frozen=True)
class Standing:
    """The state of a charge by its own entries only, against which a move is checked.

    Attributes:
        state: the state that its newest entry left.
        steps: how many steps it pays for; None where the query runs at once.
        begun: how many of them have begun.
    """

    asset: str
    state: str
    steps: int | None
    begun: int


@dataclass(frozen=True)
class Reservation:
    """The charges that one run of a plan may use.

    Attributes:
        charges: one per planned query, in the plan's order.
        run: 1 for the first run under this key, 2 when a finished run is repeated, ...
        replays: charge id -> the stored answer of a query that an earlier attempt paid for.
        lost: how many queries earlier attempts began and lost; they stay charged and are charged again.
    """

    charges: tuple[Charge, ...]
    run: int
    replays: Mapping[str, Any]
    lost: int = 0

    @property
    def resumed(self) -> int:
        """How many steps earlier attempts began under charges that this run continues; 0 where it starts afresh."""
        return sum(charge.steps_begun for charge in self.charges if charge.state == "begun")

    @property
    def steps(self) -> int:
        """How many steps the charges pay for, those of earlier attempts included."""
        return sum(charge.steps or 0 for charge in self.charges)


@dataclass(frozen=True)
class Closed:
    """A run that is or will be committed: its reservation, and when it began, by the monotonic clock."""

    reservation: Reservation
    started: float


@dataclass(frozen=True)
class Balance:
    """The amount an asset has spent, as the filter sees it, which holds for plans chosen adaptively.

    Attributes:
        used: the filter's sums: of Renyi divergences at each of the asset's orders, or of mu^2.
        spent: the epsilon they imply at the asset's delta.
        cap: the budget's epsilon.
        beside: the deltas that are in none of these sums.
        most_beside: what they may add up to.
    """

    used: tuple[float, ...]
    spent: float
    cap: float
    beside: float
    most_beside: float

    @property
    def left(self) -> float:
        """Epsilon of the cap not yet spent."""
        return max(0.0, self.cap - self.spent)

    @property
    def fits(self) -> bool:
        """Whether the filter admits this balance."""
        return self.spent <= self.cap and self.beside <= self.most_beside


def earlier_looks(run: Run, charges: Iterable[Charge]) -> list[Charge]:
    """Return the charges under which this stage and variant looked at these rows, whatever was asked."""
    own = (run.stage, run.variant, run.fingerprint)
    return [one for one in charges if one.looked and (one.stage, one.variant, one.fingerprint) == own]


def consent_word(run: Run, charges: Iterable[Charge]) -> str:
    """Return the owner's word. It names the run and all looks charged to its stage and variant on these rows so far.

    Guarantee: it holds for one further charge. As soon as that has begun, the word for the next one is another, so that
    one which a shell exported, or a schedule kept, pays for nothing more.
    """
    known = {"run": run.key, "looks": sorted(one.id for one in earlier_looks(run, charges))}
    return f"{run.stage}@{run.variant}:{digest_of(canonical_json(known))[:_DIGITS]}"


def read_consents(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the words in an environment, divided by commas or spaces."""
    return frozenset(filter(None, re.split(r"[\s,]+", variables.get(CONSENT, ""))))
