"""`palimpsest register`: enter the workspace's data set into the ledger."""

from pathlib import Path

from palimpsest.cli.context import asset_of
from palimpsest.errors import LedgerError
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, require_unit


def register_asset(workspace: Path, *, amend: bool = False, lost: bool = False) -> None:
    """Make the ledger where there is none and enter the asset of params.yaml; entering it twice changes nothing.

    Raises:
        LedgerError: if the asset is known on other terms, or was charged on another ledger that is not said to be lost.
    """
    enter(load(workspace), workspace, amend=amend, lost=lost)


def enter(params: Params, workspace: Path, *, amend: bool = False, lost: bool = False) -> None:
    """Enter the asset of params that are not yet, or already, the workspace's; see `register_asset`."""
    ledger, asset = Ledger.create(ledger_url(params, workspace)), asset_of(params)
    if amend:
        require_unit(ledger.asset(asset.name), asset)  # before anything is written
        ledger.amend(asset.name, asset.epsilon)
    charged = 0 if params.world is not None else ledger.books().elsewhere(asset.name)
    if charged and not lost:
        raise LedgerError(
            f"Asset {asset.name!r} was charged on another ledger, by the entries noted here; the one at {ledger.place} "
            "does not know it.",
            "Put that ledger back, or set PALIMPSEST_LEDGER to it; only other records may have another name. If the "
            "ledger is lost, --lost begins a new one: what was spent is then unknown, and nothing can be released.",
        )
    known = ledger.register(asset, lost=charged > 0)
    if known.after_loss:
        print(f"{known.name}: an earlier ledger is lost; what it spent is unknown and in no total")
    print(
        f"{known.name}: registered in {ledger.place} with a budget of epsilon {known.epsilon:g} at delta "
        f"{known.delta:.3g}, for adding or removing one {known.unit} of about {known.n_public}{_whom(known)}"
    )


def _whom(asset: Asset) -> str:
    column = asset.unit_column
    return "" if column is None else f", each a value of column {column!r} with all its rows"
