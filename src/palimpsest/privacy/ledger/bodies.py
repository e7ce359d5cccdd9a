"""What an entry's body says as a value, and the body of a value: the one place for both.

What a charge is at a moment - reserved, begun (and after how many steps), answered, committed, refunded - is derived
from its entries; nothing is ever updated in place.
"""

from dataclasses import asdict, fields, replace
from typing import Any

from palimpsest.privacy import events
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.chain import Chain, Entry
from palimpsest.privacy.ledger.hashes import digest_of
from palimpsest.privacy.ledger.records import MOVES, Asset, Cap, Charge, Run, Standing
from palimpsest.privacy.planned import PlannedQuery

_LATER = ("key", "after_loss", "unit_column")  # what a registration may lack: that of records has no column
_OF_RUN = ("stage", "variant", "purpose", "fingerprint")


def registration(asset: Asset) -> dict[str, Any]:
    """What is registered of an asset: its public terms, the hash of its key, and that an earlier ledger is lost."""
    return _public(asset) | key_hash(asset) | ({"lost": True} if asset.after_loss else {})


def key_hash(asset: Asset) -> dict[str, Any]:
    """What the chain holds of an asset's key."""
    return {"key_hash": digest_of(asset.key.hex())}


def fixed_terms(asset: Asset) -> dict[str, Any]:
    """What registering an asset again must say alike."""
    return {name: value for name, value in _public(asset).items() if name != "orders"}


def _public(asset: Asset) -> dict[str, Any]:
    left_out = {"key", "after_loss"} | ({"unit_column"} if asset.unit_column is None else set())
    return {name: value for name, value in asdict(asset).items() if name not in left_out}


def asset_of(found: Chain, name: str) -> Asset | None:
    """The asset of that name; None where it is not registered.

    Raises:
        LedgerError: its entry has not its form.
    """
    terms = found.terms(name)
    if terms is None:
        return None
    with chain.interpreted(f"The entry of asset {name!r}"):
        own = {each.name: terms[each.name] for each in fields(Asset) if each.name not in _LATER}
        own |= {"orders": tuple(terms["orders"]), "after_loss": bool(terms.get("lost"))}
        own |= {"unit_column": terms.get("unit_column")}
        asset = Asset(**own, key=bytes.fromhex(found.keys[name]))
        asset.require_possible()
    return asset


def has_key_hash(found: Chain, name: str) -> bool:
    """Whether the chain holds the hash of the asset's key; `chain.read` has compared it."""
    return "key_hash" in (found.terms(name) or {})


def caps_of(found: Chain, name: str) -> list[Cap]:
    """Every cap that an asset has had, oldest first."""
    with chain.interpreted("A cap"):
        said = ((entry.says, entry.time) for entry in found.of(name, "register", "amend"))
        return [Cap(body["epsilon"], time) for body, time in said if "epsilon" in body]


def charges_of(found: Chain, name: str) -> list[Charge]:
    """All charges of an asset as their entries left them, oldest first."""
    charges: dict[str | None, Charge] = {}
    for entry in found.of(name, *MOVES):
        with chain.interpreted(f"Entry {entry.seq}"):
            moved = charge_of(entry) if entry.kind == "reserve" else _moved(charges[entry.charge], entry)
            charges[entry.charge] = moved
    return list(charges.values())


def reservation(run: Run, number: int, index: int, query: PlannedQuery) -> dict[str, Any]:
    """What is reserved for one query of a run."""
    steps = {} if query.steps is None else {"steps": query.steps}
    return {
        "run_key": run.key,
        "run": number,
        "index": index,
        **{name: getattr(run, name) for name in _OF_RUN},
        "query": query.name,
        "event": events.to_json(query.event),
        "own_delta": query.own_delta,
        "adjacency": query.adjacency,
        "partition": query.partition,
        **steps,
    }


def charge_of(entry: Entry) -> Charge:
    """The charge that an entry reserved."""
    body = entry.says
    names = ("run_key", "run", "index", *_OF_RUN, "query", "own_delta")
    return Charge(
        **{name: body[name] for name in names},
        id=str(entry.charge),
        seq=entry.seq,
        event=events.from_json(body["event"]),
        partition=tuple(body["partition"]) if body["partition"] else None,
        steps=body.get("steps"),
        state=MOVES[entry.kind].after,
        time=entry.time,
    )


def standing_of(first: Entry, last: Entry) -> Standing:
    """Where a charge stands, by its reservation and its newest entry."""
    with chain.interpreted(f"Entry {last.seq}"):
        return Standing(first.asset, MOVES[last.kind].after, first.says.get("steps"), last.says.get("begun", 0))


def _moved(charge: Charge, entry: Entry) -> Charge:
    body = entry.says
    return replace(
        charge,
        state=MOVES[entry.kind].after,
        noise_fixed=bool(body.get("noise_fixed", charge.noise_fixed)),
        steps_begun=int(body.get("begun", charge.steps_begun)),
        answer_hash=body.get("answer_hash", charge.answer_hash),
    )
