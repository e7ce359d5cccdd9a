"""An asset's books as plain values, for tables, pages and the statement."""

from dataclasses import asdict
from typing import Any

from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.records import Charge


def ledger_summary(books: Books, name: str) -> dict[str, Any]:
    """What the books say of one asset, as plain values."""
    asset, balance = books.asset(name), books.balance(name)
    share = asset.filter_delta / len(asset.orders)
    implied = [accounting.renyi_epsilon(o, d, share) for o, d in zip(asset.orders, balance.divergences, strict=True)]
    best = implied.index(min(implied))
    return {
        "asset": asset.name,
        "unit": asset.unit,
        "delta": asset.delta,
        "cap_epsilon": asset.epsilon,
        "caps": [asdict(cap) for cap in books.caps(name)],
        "filter": {"order": asset.orders[best], "used": balance.divergences[best], "orders": list(asset.orders)},
        "spent_epsilon": balance.spent,
        "left_epsilon": balance.left,
        "charges": [_line(charge, asset.delta) for charge in books.charges(name)],
        "head": books.head,
        "entries": books.entries,
        "verified": True,
        "after_loss": asset.after_loss,
    }


def _line(charge: Charge, delta: float) -> dict[str, Any]:
    private = accounting.is_private(charge.event)
    return {
        "id": charge.id,
        "seq": charge.seq,
        "stage": charge.stage,
        "variant": charge.variant,
        "query": charge.query,
        "state": charge.state,
        "purpose": charge.purpose,
        "partition": None if charge.partition is None else list(charge.partition),
        "epsilon": accounting.epsilon(charge.event, delta - charge.own_delta) if private else None,
        "time": charge.time,
        "run": charge.run,
    }
