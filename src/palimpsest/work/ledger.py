"""The ledger of a workspace: the data set's entry, its books, and receipts held against them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from palimpsest.errors import DataError, LedgerError
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, read
from palimpsest.params.schema import Params, RunSettings
from palimpsest.privacy.ledger import exported
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.ledger import Ledger, describe_differences, require_terms
from palimpsest.privacy.ledger.records import Asset, Balance
from palimpsest.privacy.ledger.summary import Accounted, LedgerSummary, account_charges, ledger_summary
from palimpsest.privacy.ledger.witness import Witnesses
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.privacy.shown import delta_up, up
from palimpsest.work.context import Context, asset_of, load_or_compute
from palimpsest.workspace import PARAMS, RECEIPTS


def books_of(params: Params, workspace: Path) -> Books | None:
    """Return the books of the ledger, if there is one; entering the data set reports what is wrong with it."""
    try:
        return Ledger.open(ledger_url(params, workspace)).books()
    except LedgerError:
        return None


def register_asset(workspace: Path, *, amend: bool = False, lost: bool = False, same_rows: str | None = None) -> None:
    """Make the ledger where there is none and enter the asset of params.yaml; entering it twice changes nothing.

    With `same_rows`, the reason, the owner's word that its rows may be those of another asset is written down.

    Raises:
        LedgerError: if the asset is known on other terms, or was charged on another ledger that is not said to be lost.
    """
    params = read(workspace)
    enter(params, workspace, amend=amend, lost=lost)
    if same_rows is not None:
        _allow_same_rows(params, workspace, same_rows)


def _allow_same_rows(params: Params, workspace: Path, reason: str) -> None:
    """Record the owner's word, and what identifies the rows, so that what both names spent adds up at once."""
    name, ledger = params.dataset.asset, Ledger.open(ledger_url(params, workspace))
    likeness = _likeness(params, workspace, ledger.books().rows_key)
    ledger.allow_same_rows(name, reason, likeness)
    books = ledger.books()
    since = (
        "both totals add up" if likeness else "both totals add up once a run has read its file, which was not read now"
    )
    print(f"{name}: may have the rows of another data set; {since}")
    if others := books.names(name):
        print(f"{name}: epsilon {up(books.balance(name).spent)} is spent, over {', '.join((name, *others))} together")


def _likeness(params: Params, workspace: Path, key: bytes) -> str | None:
    """Return what identifies the private file's rows, as a run finds it; None if the file is missing or unreadable."""
    data, path = params.dataset, workspace / params.dataset.private
    if params.world is not None or not path.is_file():
        return None
    from palimpsest.records.faults import POLICIES  # it reads files, and takes a while to import
    from palimpsest.records.keyed import likeness
    from palimpsest.records.read import ColumnNames, read_rows

    keys = params.schema_of_data.keys
    columns = ColumnNames(data.text, data.label, data.unit.column, keys, nobody=data.unit.missing == "drop")
    try:
        rows = read_rows(path, columns, data.max_length, tuple(data.labels) or None, bad=POLICIES[data.bad_rows])
    except DataError:  # a run stops there, and says which record
        return None
    return likeness((row.text for row in rows), key)


def enter(params: Params, workspace: Path, *, amend: bool = False, lost: bool = False) -> None:
    """Enter the asset of params that are not yet, or already, the workspace's; see `register_asset`."""
    ledger, asset = Ledger.create(ledger_url(params, workspace)), asset_of(params)
    if params.world is None and not lost:
        ledger.books().require_alone(asset.name)
    if amend:
        _amend(ledger, asset)
    before = ledger.books().find_asset(asset.name)
    known = ledger.register(asset, lost=lost)
    if before is not None and (changed := describe_differences(known, before)):
        print(f"{known.name}: nothing was charged under its earlier terms, which are corrected: {changed}")
    if known.after_loss:
        print(f"{known.name}: an earlier ledger is lost; what it spent is unknown and in no total")
    print(
        f"{known.name}: registered in {ledger.place} with a budget of epsilon {known.epsilon:g} at "
        f"delta {delta_up(known.delta)}, for adding or removing one {known.unit} of about "
        f"{known.n_public}{_describe_unit(known)}"
    )
    if known.milestones:
        stated = " or ".join(f"{one:g}" for one in known.milestones)
        print(f"{known.name}: releases will state epsilon {stated}, whichever is not passed, or the cap")
    if spent := ledger.balance(known.name).spent:
        print(f"{known.name}: epsilon {up(spent)} of it is spent already; workspaces of one asset share its budget")


def _amend(ledger: Ledger, asset: Asset) -> None:
    """Set the cap if all other terms are the same; a refusal changes nothing."""
    known = ledger.asset(asset.name)
    require_terms(known, replace(asset, epsilon=known.epsilon))
    ledger.amend(asset.name, asset.epsilon)


def _describe_unit(asset: Asset) -> str:
    column = asset.unit_column
    return "" if column is None else f", each a value of column {column!r} with all its rows"


_SQLITE = b"SQLite format 3\0"  # what every such file begins with


def describe_total(books: Books, name: str) -> Iterator[str]:
    """Yield what must be said beside a total: whose charges it adds up, and which entries are faulty."""
    if others := books.names(name):
        yield f"That is the sum over {name} and the names with the same rows: {', '.join(others)}."
    for other in books.other_units(name):
        asset, spent = books.asset(other), books.balance(other).spent
        yield (
            f"The same rows are {other}, for one {asset.unit}: epsilon {up(spent)} at delta {delta_up(asset.delta)} "
            "was spent there beside it. It is in no sum, for the unit of privacy is another."
        )
    for fault in books.faults(name):
        if fault.struck is not None:
            yield f"Struck: {fault}. The owner's reason: {fault.struck}"
        else:
            counts = "it fills the budget" if fault.fills else "it counts at what covers it"
            yield f"Faulty: {fault}; {counts}, until `palimpsest ledger --strike {fault.seq} --because REASON`."


def summarise_books(context: Context, books: Books) -> LedgerSummary:
    """Return the books for display: the same entries' result when last shown; `--verify` works it out anew."""

    def worked_out() -> dict[str, Any]:
        found = account_charges(books, context.asset.name)
        return {"balance": asdict(found.balance), "epsilons": found.epsilons}

    body = load_or_compute(context.workspace, "ledger", [context.asset.name, books.head], worked_out)
    balance = Balance(**{**body["balance"], "used": tuple(body["balance"]["used"])})
    return ledger_summary(books, context.asset.name, Accounted(balance, body["epsilons"]))


def give_back(ledger: Ledger, asset: str, charge_id: str) -> None:
    """Refund one reservation that never began.

    Raises:
        LedgerError: if there is no such charge, it has begun, or a process is at its run.
    """
    found = [one for one in ledger.charges(asset) if one.asset == asset and one.id.startswith(charge_id)]
    if len(found) == 1:
        with ledger.lock_run(asset, found[0].run_key):
            if ledger.refund(found):
                return
    raise LedgerError(
        f"No single charge that starts with {charge_id!r} can be given back.",
        "Name one that is `reserved`: what has begun stays charged for ever.",
    )


def address_of(workspace: Path) -> str:
    """Return the address of the workspace's ledger; without a workspace, only PALIMPSEST_LEDGER gives it."""
    given = os.environ.get(LEDGER_VARIABLE)
    if given and not (workspace / PARAMS).is_file():
        return _url(given)
    return ledger_url(read(workspace), workspace)


def books_at(place: str) -> Books:
    """Return the books of a ledger: an exported file, a SQLite file, or the address of a database."""
    path = Path(place)
    if "://" not in place and not _is_database(path):
        return Books(exported.read(path).chain, place, Witnesses(path.parent))
    return Ledger.open(_url(place)).unchecked_books()


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _url(place: str) -> str:
    return place if "://" in place else f"sqlite:///{Path(place).expanduser().resolve()}"


def receipts_of(context: Context) -> dict[str, Receipt]:
    """Return the receipts of the fitted models, of the variants drawn from them and of those charged themselves.

    Only those that have run have one.

    Raises:
        LedgerError: if one is not whole.
    """
    run, folder = context.params.run, context.workspace / RECEIPTS
    models = (f"models/{name}" for name in (*run.dp_train, *run.discriminator))
    paths = {name: folder / f"{name}.json" for name in (*models, *run.evaluate)}
    return {name: read_receipt(path) for name, path in paths.items() if path.is_file()}


def check_models(run: RunSettings, name: str, found: Mapping[str, Receipt]) -> Iterator[str]:
    """Check that a variant has its model's receipt as last fitted, and that a discriminator's counts its base's."""
    own, receipt = name.removeprefix("models/"), found[name]
    model = run.dp_lm.get(name, own)  # a fitted model's receipt, and a written variant's, is its own
    if (receipt.model, receipt.variant) != (model, own):
        yield f"it is the receipt of {receipt.variant!r}, drawn from {receipt.model!r}, not from {model!r}"
    if name in run.dp_lm and replace(receipt, variant=model) != found.get(f"models/{model}"):
        yield f"it is not that of model {model!r} as it was last fitted: draw again with `palimpsest run`"
    below = run.discriminator.get(model)
    if not _charges(found.get(f"models/{below}")) <= receipt.charges:
        yield f"it does not count the language model {below!r} as it was last fitted"
    voted = [behind[name] for behind in (run.vote_select, run.restate, run.tabulate) if name in behind]
    for source in (*voted, *run.choose.get(name, ())):
        if not _charges(found.get(source)) <= receipt.charges:
            yield f"it does not count the variant {source!r} that it is made of as that was last made"


def _charges(receipt: Receipt | None) -> frozenset[str]:
    return frozenset() if receipt is None else receipt.charges
