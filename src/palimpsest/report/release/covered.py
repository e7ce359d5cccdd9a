"""Does a ledger cover a receipt? All is recomputed from the charges; the receipt only names them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palimpsest.privacy import accounting, events
from palimpsest.privacy.ledger import Asset, Charge, composed

_TOLERANCE = 1e-6


def uncovered(asset: Asset, ledgered: Sequence[Charge], receipt: Mapping[str, Any]) -> list[str]:
    """What does not hold in one receipt of a release: its terms, its charges, its epsilons and its curve.

    Args:
        asset: the data set, as the ledger knows it.
        ledgered: its charges in the ledger, or those of an extract of it.
        receipt: of the released variant.

    Returns:
        One sentence for each problem; none where the ledger covers the receipt. A field that is missing or of another
        type is one problem.
    """
    try:
        return list(_problems(asset, {charge.id: charge for charge in ledgered}, receipt))
    except (KeyError, TypeError, ValueError) as error:
        return [f"it is not a whole receipt ({type(error).__name__})"]


def _problems(asset: Asset, ledgered: Mapping[str, Charge], receipt: Mapping[str, Any]) -> Iterator[str]:
    own = [ledgered.get(line["charge"]) for line in receipt["queries"]]
    charges = [charge for charge in own if charge is not None]
    if not charges or len(charges) < len(own):
        yield "the ledger does not know a charge of it"
        return
    yield from _terms(asset, receipt, charges)
    for line, charge in zip(receipt["queries"], charges, strict=True):
        yield from _line(line, charge)
    if len({charge.id for charge in charges}) < len(charges):
        yield "it names a charge twice"
    runs = {(charge.run_key, charge.run) for charge in charges}
    beside = (charge for charge in ledgered.values() if (charge.run_key, charge.run) in runs)
    if {charge.id for charge in beside if charge.state == "committed"} != {charge.id for charge in charges}:
        yield "it does not list every charge of its runs"
    yield from _epsilons(asset, receipt, charges)


def _terms(asset: Asset, receipt: Mapping[str, Any], own: Sequence[Charge]) -> Iterator[str]:
    last = own[-1]
    terms = {
        "model": last.variant,
        "stage": last.stage,
        "purpose": "release",
        "run": last.run,
        "asset": asset.name,
        "delta": asset.delta,
        "unit": asset.unit,
        "adjacency": asset.adjacency,
        "noise_fixed": False,
        "accountant": accounting.primary(composed(own)),
    }
    for field, value in terms.items():
        if receipt[field] != value:
            yield f"{field} must be {value!r}; the receipt says {receipt[field]!r}"


def _line(line: Mapping[str, Any], charge: Charge) -> Iterator[str]:
    if charge.state != "committed":
        yield f"charge {charge.id} is {charge.state}, not committed"
    if charge.purpose != "release":
        yield f"charge {charge.id} is of a reference run, outside the total"
    if charge.noise_fixed:
        yield f"the noise of charge {charge.id} was fixed by a seed"
    said = line["name"], line["model"], events.from_json(line["event"]), line["own_delta"], line["state"]
    if said != (charge.query, charge.variant, charge.event, charge.own_delta, charge.state):
        yield f"charge {charge.id} has another name, model, event, delta or state in the ledger"
    if line["partition"] != (None if charge.partition is None else list(charge.partition)):
        yield f"charge {charge.id} is of another part of the data set in the ledger"


def _epsilons(asset: Asset, receipt: Mapping[str, Any], own: Sequence[Charge]) -> Iterator[str]:
    event, beside = composed(own), sum(charge.own_delta for charge in own)
    if not accounting.is_private(event):
        yield "it adds no noise"
        return
    for field, accountant in (("epsilon", accounting.primary(event)), ("epsilon_rdp", "rdp")):
        again = accounting.epsilon(event, asset.delta - beside, accountant)
        if not close(again, receipt[field]):
            yield f"{field} is {again:.6f} by the charges; the receipt says {receipt[field]}"
    groups = [(accounting.group_epsilon(event, row["k"], asset.delta, beside), row) for row in receipt["group"]]
    if any(not close(again, row["epsilon"]) for again, row in groups):
        yield "the epsilons of its groups are others"
    alpha, beta = accounting.trade_off(event)
    if not (equal(alpha, receipt["curve"]["alpha"]) and equal(beta, receipt["curve"]["beta"])):
        yield "its trade-off curve is another"
    if receipt["epsilon_target"] is None or receipt["epsilon"] > receipt["epsilon_target"] * (1 + _TOLERANCE):
        yield "its proved epsilon is above its target"


def equal(values: Sequence[float], said: Sequence[float]) -> bool:
    """Whether two lists are the same within rounding."""
    return len(values) == len(said) and all(map(close, values, said))


def close(value: float, said: float | None) -> bool:
    """The same within rounding; JSON holds no infinity, so None stands for it."""
    return math.isinf(value) if said is None else math.isclose(value, said, rel_tol=_TOLERANCE, abs_tol=1e-12)
