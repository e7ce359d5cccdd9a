"""The published extract of the ledger: every charge and cap of the asset, so that anybody can see and add up all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from palimpsest.errors import DataError
from palimpsest.privacy import events
from palimpsest.privacy.gaussian_share import Share
from palimpsest.privacy.ledger.records import Asset, Cap, Charge
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt

T = TypeVar("T")

_EXTRACT_VERSION = 4
_ASSET = ("name", "delta", "epsilon", "n_public", "unit", "unit_column", "adjacency", "filter")
_CHARGE = ("id", "stage", "variant", "purpose", "query", "own_delta", "state", "noise_fixed", "index")


def extract(asset: Asset, charges: Sequence[Charge], books: LedgerSummary) -> dict[str, Any]:
    """Return the asset's public terms, its totals, every cap it has had and every charge, whether it counts or not.

    Guarantee: a charge shows what a plan asked for and its state. Private rows decide neither, except as the statement
    names: changed rows let a stage ask again, and an attempt may fail. Charges and runs are numbered anew, each run
    separately. A run's key holds a hash of the data, so two runs of one key would tell that no row came or went in
    between; and the gap between two entries of the ledger tells how many steps had begun. Times are cut to
    days, since they would tell how long a run took. The data's fingerprint and the asset's key are not in it.
    References and refunded charges are shown and do not count.
    """
    runs = run_numbers(charges)
    return {
        "extract_version": _EXTRACT_VERSION,
        "asset": _terms(asset) | {"milestones": list(books.milestones)},
        "head": books.shown_head,
        "spent_epsilon": books.spent_epsilon,
        "left_epsilon": books.left_epsilon,
        "caps": [{"epsilon": cap.epsilon, "day": cap.time[:10]} for cap in books.caps],
        "charges": [_line(charge, seq, runs[charge.id]) for seq, charge in enumerate(charges, 1)],
    }


def run_numbers(charges: Sequence[Charge]) -> dict[str, int]:
    """Return charge id -> the number of its run among the asset's runs, from 1."""
    order = {own: number for number, own in enumerate(dict.fromkeys((one.run_key, one.run) for one in charges), 1)}
    return {one.id: order[one.run_key, one.run] for one in charges}


def renumber_run(receipt: Receipt, charges: Sequence[Charge]) -> Receipt:
    """Return the receipt with its run numbered as in the extract of these charges."""
    return replace(receipt, run=run_numbers(charges)[receipt.queries[-1].charge])


def _terms(asset: Asset) -> dict[str, Any]:
    return {name: getattr(asset, name) for name in _ASSET} | {"orders": list(asset.orders)}


def _line(charge: Charge, seq: int, run: int) -> dict[str, Any]:
    return {name: getattr(charge, name) for name in _CHARGE} | {
        "seq": seq,
        "run": run,
        "run_key": f"run {run}",
        "event": events.to_json(charge.event),
        "partition": None if charge.partition is None else list(charge.partition),
        "versions": dict(charge.versions),
        "day": charge.time[:10],
        **({} if charge.share is None else {"share": charge.share._asdict()}),
    }


def _report_malformed(read: Callable[[Mapping[str, Any]], T]) -> Callable[[Mapping[str, Any]], T]:
    """Wrap a reader so that it reports an unreadable document as no extract."""

    @wraps(read)
    def checked(document: Mapping[str, Any]) -> T:
        try:
            return read(document)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"The ledger's extract has not its form ({type(error).__name__}).",
                "Ask the releaser for the release again.",
            ) from None

    return checked


@_report_malformed
def asset_of(document: Mapping[str, Any]) -> Asset:
    """Read the asset of an extract, without its key.

    Raises:
        DataError: the document is no extract, or its asset is of persons and names no column, or the other way round.
    """
    asset = document["asset"]
    orders, milestones = (tuple(map(float, asset[name])) for name in ("orders", "milestones"))
    return Asset(**{name: asset[name] for name in _ASSET}, orders=orders, milestones=milestones)


@_report_malformed
def caps_of(document: Mapping[str, Any]) -> list[Cap]:
    """Read the caps of an extract, oldest first. Raises DataError where the document is no extract."""
    return [Cap(float(cap["epsilon"]), str(cap["day"])) for cap in document["caps"]]


@_report_malformed
def charges_of(document: Mapping[str, Any]) -> list[Charge]:
    """Read the charges of an extract. Raises DataError where the document is no extract."""
    return [_charge(line) for line in document["charges"]]


def _charge(line: Mapping[str, Any]) -> Charge:
    partition = None
    if line["partition"] is not None:
        scheme, cell = map(str, line["partition"])
        partition = scheme, cell
    return Charge(
        **{name: line[name] for name in (*_CHARGE, "seq", "run")},
        run_key=line["run_key"],
        fingerprint="",
        event=events.parse_strictly(line["event"]),
        partition=partition,
        versions=tuple(sorted((str(part), int(number)) for part, number in line["versions"].items())),
        share=Share(**line["share"]) if "share" in line else None,
        time=line["day"],
    )
