"""`palimpsest register`: enter the workspace's data set into the ledger."""

from pathlib import Path

from palimpsest.cli.context import asset_of
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger import Ledger


def register_asset(workspace: Path, *, amend: bool = False) -> None:
    """Make the ledger where there is none and enter the asset of params.yaml; entering it twice changes nothing.

    Raises:
        LedgerError: if the asset is known on other terms.
    """
    enter(load(workspace), workspace, amend=amend)


def enter(params: Params, workspace: Path, *, amend: bool = False) -> None:
    """Enter the asset of params that are not yet, or already, the workspace's; see `register_asset`."""
    ledger, asset = Ledger.create(ledger_url(params, workspace)), asset_of(params)
    if amend:
        ledger.amend(asset.name, asset.epsilon)
    known = ledger.register(asset)
    print(
        f"{known.name}: registered in {ledger.place} with a budget of epsilon {known.epsilon:g} at delta "
        f"{known.delta:.3g}, for adding or removing one {known.unit} of about {known.n_public}"
    )
