"""What most commands start from: the workspace's params, its ledger, and its graph."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from palimpsest.errors import LedgerError
from palimpsest.files import close_workspace
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, require_unit
from palimpsest.privacy.ledger.witness import receipt_heads
from palimpsest.workspace import RECEIPTS

OFFLINE = {"DVC_NO_ANALYTICS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Context:
    """An opened workspace."""

    workspace: Path
    params: Params
    ledger: Ledger
    asset: Asset


def asset_of(params: Params) -> Asset:
    """The asset that params.yaml describes."""
    data = params.dataset
    return Asset(
        name=data.asset,
        delta=params.delta,
        epsilon=params.privacy.budget.epsilon,
        n_public=params.schema_of_data.n_units,
        unit=params.schema_of_data.unit,
        unit_column=data.unit.column,
    )


def opened(workspace: Path) -> Context:
    """Open a workspace, close it to others, and check that the ledger is whole, as new as what was noted of it, and
    knows its asset on the same terms.

    Raises:
        ParamsError, LedgerError, DataError: with what to do.
    """
    params = load(workspace)
    close_workspace(workspace)
    ledger = Ledger.open(ledger_url(params, workspace))
    books = ledger.books(receipt_heads(workspace / RECEIPTS, params.dataset.asset))
    known, wanted = books.asset(params.dataset.asset), asset_of(params)
    require_unit(known, wanted)
    if (known.delta, known.n_public) != (wanted.delta, wanted.n_public):
        raise LedgerError(
            f"params.yaml gives asset {known.name!r} delta {wanted.delta!r} and {wanted.n_public} {wanted.unit}s; it "
            f"is registered with {known.delta!r} and {known.n_public}.",
            "These never change for a data set: restore them in params.yaml.",
        )
    if known.epsilon != wanted.epsilon:
        raise LedgerError(
            f"params.yaml caps asset {known.name!r} at epsilon {wanted.epsilon:g}; the ledger at {known.epsilon:g}.",
            "Restore privacy.budget.epsilon, or, if the data's owner agrees, run `palimpsest register --amend`.",
        )
    return Context(workspace, params, ledger, known)


def environment() -> dict[str, str]:
    """The environment of child processes: this interpreter first on the path, analytics off."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, **OFFLINE, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}"}
