"""A summary of one asset's books, for tables, pages and the statement."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.records import MOVES, Asset, Balance, Cap, Charge
from palimpsest.privacy.ledger.total import Total


@dataclass(frozen=True)
class ChargeLine:
    """One charge as it is shown.

    Attributes:
        seq: its place among the asset's charges, from 1. The chain's own numbers would show entries in between, some of
            which are there because rows changed.
        epsilon: the epsilon of its event only; None where no noise is added.
    """

    id: str
    seq: int
    stage: str
    variant: str
    query: str
    state: str
    purpose: str
    partition: tuple[str, str] | None
    epsilon: float | None
    time: str
    run: int

    @property
    def released(self) -> bool:
        """Whether it stands for a release: a reference is outside the total, and a refunded charge cost nothing."""
        return self.purpose == "release" and self.state != "refunded"


@dataclass(frozen=True)
class UsedOrder:
    """The order of the filter that the total is stated by, and the divergence spent at it, among all its orders."""

    order: float
    used: float
    orders: tuple[float, ...]


@dataclass(frozen=True)
class UsedGaussian:
    """The total of a filter in Gaussian DP: mu of all that was asked, and the deltas beside it."""

    mu: float
    beside: float
    most_beside: float


@dataclass(frozen=True)
class LedgerSummary:
    """The books of one asset.

    Attributes:
        delta: of every release and of the total.
        cap_epsilon: the budget.
        caps: every cap it has had, oldest first.
        filter: what the filter counts.
        charges: all, oldest first.
        shown_head: hash of the newest entry about a charge or a cap, which readers of a release are shown.
        head: hash of the ledger's newest entry. Whether there is one after `shown_head` may depend on private rows.
        entries: how many there are.
        verified: whether the chain of hashes was recomputed and holds.
        after_loss: an earlier ledger of this data set is lost: what it spent is in no total.
        total: what is proved of all releases together.
        milestones: those that were registered before anything was asked.
    """

    asset: str
    unit: str
    delta: float
    cap_epsilon: float
    caps: tuple[Cap, ...]
    filter: UsedOrder | UsedGaussian
    spent_epsilon: float
    left_epsilon: float
    charges: tuple[ChargeLine, ...]
    shown_head: str
    head: str
    entries: int
    verified: bool
    after_loss: bool
    total: Total
    milestones: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a file holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Accounted:
    """The figures of an asset that take long to compute: its balance, and the epsilon of each charge by its id."""

    balance: Balance
    epsilons: Mapping[str, float | None]


def account_charges(books: Books, name: str) -> Accounted:
    """Return the balance of one asset's rows, and what each charge to them costs by itself."""
    asset = books.asset(name)
    return Accounted(books.balance(name), {one.id: _epsilon(one, asset.delta) for one in books.charges(name)})


def ledger_summary(books: Books, name: str, known: Accounted | None = None) -> LedgerSummary:
    """Return the summary of one asset's books; `known` holds figures computed from the same books before."""
    asset, found = books.asset(name), known or account_charges(books, name)
    balance = found.balance
    return LedgerSummary(
        asset=asset.name,
        unit=asset.unit,
        delta=asset.delta,
        cap_epsilon=asset.epsilon,
        caps=tuple(books.caps(name)),
        filter=_filter_use(asset, balance),
        spent_epsilon=balance.spent,
        left_epsilon=balance.left,
        charges=tuple(_line(charge, seq, found) for seq, charge in enumerate(books.charges(name), 1)),
        shown_head=[entry.hash for entry in books.chain.of(name, "register", "amend", *MOVES)][-1],
        head=books.head,
        entries=books.entries,
        verified=True,  # `Ledger.books` refuses any other
        after_loss=asset.after_loss,
        total=books.total(name, balance),
        milestones=books.milestones(name),
    )


def _filter_use(asset: Asset, balance: Balance) -> UsedOrder | UsedGaussian:
    if asset.filter == "gdp":
        return UsedGaussian(math.sqrt(balance.used[0]), balance.beside, balance.most_beside)
    implied = asset.implied_epsilons(balance.used)
    best = implied.index(min(implied))
    return UsedOrder(asset.orders[best], balance.used[best], asset.orders)


def _epsilon(charge: Charge, delta: float) -> float | None:
    private = accounting.is_private(charge.event) and charge.own_delta < delta
    return accounting.epsilon(charge.event, delta - charge.own_delta) if private else None


def _line(charge: Charge, seq: int, found: Accounted) -> ChargeLine:
    same = (field.name for field in fields(ChargeLine) if field.name not in ("seq", "epsilon"))
    return ChargeLine(**{name: getattr(charge, name) for name in same}, seq=seq, epsilon=found.epsilons[charge.id])
