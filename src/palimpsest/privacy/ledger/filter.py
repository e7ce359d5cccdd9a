"""The budget filter: what charges add up to, and whether a plan still fits. Pure functions of charges.

Guarantee: the charges counted for one asset satisfy (epsilon, delta)-DP in total, also when each plan is chosen
after looking at the results of earlier ones. For one Renyi order the sum of divergences is a valid filter
(Feldman and Zrnic 2021, Theorem 3.1). Here a plan passes while at least one of the fixed orders stays within its
limit for (epsilon, delta / 2 / number of orders). Every transcript then ends within the limit of some order;
assign it to one. On the transcripts assigned to an order the process equals the one that this order's filter
alone would stop, so they add at most that order's share of delta, and the shares sum to delta / 2. The deltas
that no event carries never pass the other half.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import dp_accounting as dpa
import numpy as np

from palimpsest.errors import BudgetExceeded
from palimpsest.privacy import accounting, composition, events
from palimpsest.privacy.composition import Cell, Term
from palimpsest.privacy.ledger.records import Asset, Balance, Charge, Run
from palimpsest.privacy.planned import PlannedQuery


def balance(asset: Asset, charges: Iterable[Charge]) -> Balance:
    """What the charges of an asset have spent, and what its cap is."""
    used = _divergences(asset, _counted(charges))
    return Balance(used, asset.spent(used), asset.epsilon)


def preview(asset: Asset, charges: Iterable[Charge], wanted: Mapping[tuple[str, int], Sequence[PlannedQuery]]) -> float:
    """The epsilon spent on the asset once these further queries have run, by (key, number) of their runs."""
    more = [(query.event, _cell(query.partition, *run)) for run, planned in wanted.items() for query in planned]
    return asset.spent(_divergences(asset, [*_counted(charges), *more]))


def composed(charges: Iterable[Charge]) -> dpa.DpEvent:
    """What these charges did to any one unit, as one event: cells of one scheme of a run in parallel, the rest added.

    Guarantee: the event covers every unit of privacy, all of whose rows lie in one cell of a scheme. Among its parts
    are, as often as they were charged, all queries of that cell, whichever it is, and all that were asked of the whole
    data set.
    """
    return composition.composed(_placed(charge) for charge in charges)


def require_budget(
    asset: Asset, charges: Sequence[Charge], wanted: Sequence[PlannedQuery], run: Run, number: int
) -> None:
    """Raise BudgetExceeded where a run's further queries would pass what the asset has left.

    Args:
        asset: the data set.
        charges: all of its charges.
        wanted: what the run has no charge for yet.
        run: what asks.
        number: which run of its plan it is.
    """
    now = balance(asset, charges)
    after = preview(asset, charges, {(run.key, number): wanted})
    own = sum(charge.own_delta for charge in charges if charge.counted) + sum(query.own_delta for query in wanted)
    if after <= asset.epsilon and own <= asset.delta - asset.filter_delta:
        return
    share = "Lower the deltas outside the events" if after <= asset.epsilon else "Lower the variant's epsilon"
    raise BudgetExceeded(
        f"Stage {run.stage!r} ({run.variant}) would pass the budget of asset {asset.name!r}: spent epsilon "
        f"{now.spent:.3f}, asked {after - now.spent:.3f} more, left {now.left:.3f} of {asset.epsilon:g} at delta "
        f"{asset.delta:.3g} (deltas outside the events: {own:.3g} of {asset.delta - asset.filter_delta:.3g}).",
        f"Nothing was charged and no row was read. {share}, drop a variant, or, if the data's owner agrees, raise the "
        "cap of epsilon with `palimpsest register --amend`.",
    )


def _counted(charges: Iterable[Charge]) -> list[Term]:
    return [_placed(charge) for charge in charges if charge.counted]


def _placed(charge: Charge) -> Term:
    return charge.event, _cell(charge.partition, charge.run_key, charge.run)


def _cell(partition: tuple[str, str] | None, run_key: str, number: int) -> Cell | None:
    """A scheme holds within one run: over another data version or key a unit may lie in another cell."""
    return (f"{run_key} {number} {partition[0]}", partition[1]) if partition else None


def _divergences(asset: Asset, terms: Iterable[Term]) -> tuple[float, ...]:
    """Summed Renyi divergences, one per order."""
    total = np.zeros(len(asset.orders))
    for body, count in composition.worst_counts(terms).items():
        total += count * np.array(_divergence_of(asset.orders, body))
    return tuple(total.tolist())


@lru_cache(maxsize=4096)
def _divergence_of(orders: tuple[float, ...], body: str) -> tuple[float, ...]:
    return tuple(accounting.rdp(events.from_json(json.loads(body)), orders).tolist())
