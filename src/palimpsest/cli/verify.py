"""`palimpsest verify`: checks that the receipts say what the ledger says, and that the accountants agree."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich.markup import escape

from palimpsest.cli.console import console
from palimpsest.cli.context import Context, open_workspace
from palimpsest.params.schema import RunSettings
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.report.release import bundle
from palimpsest.report.release.check import total_check
from palimpsest.workspace import RECEIPTS, RELEASE


def verify_workspace(workspace: Path) -> int:
    """Print one line per check; 0 if all hold, 1 otherwise."""
    context, out = open_workspace(workspace), console()
    found = _receipts(context)
    books = context.ledger.books([receipt.ledger_head for receipt in found.values()])
    out.print("[green]holds[/green]  the ledger's chain is whole")
    charges, failures = books.charges(context.asset.name), 0
    for fault in (one for one in books.faults(context.asset.name) if one.struck is None):
        failures += 1
        out.print(f"[red]fails[/red]  the ledger: {escape(str(fault))}", soft_wrap=True)
    for name, receipt in found.items():
        problems = [*_check_models(context.params.run, name, found), *receipt.problems(context.asset, charges)]
        failures += len(problems)
        for problem in problems:
            out.print(f"[red]fails[/red]  {name}: {escape(problem)}", soft_wrap=True)
        if not problems:
            out.print(f"[green]holds[/green]  {name}: the receipt is the ledger's; {_describe_accountants(receipt)}")
    release = context.workspace / RELEASE
    for problem in total_check(release).problems if (release / bundle.STATEMENT).is_file() else ():
        failures += 1
        out.print(f"[red]fails[/red]  the release: {escape(problem)}. Release again.", soft_wrap=True)
    return 1 if failures else 0


def _describe_accountants(receipt: Receipt) -> str:
    if receipt.accountant == "rdp":
        return "its epsilon is that of the one accountant that takes all of its events (RDP)"
    return f"both accountants ({receipt.accountant.upper()}, RDP) give its epsilon"


def _receipts(context: Context) -> dict[str, Receipt]:
    """Return the receipts of the fitted models, of the variants drawn from them and of those charged themselves.

    Only those that have run have one.

    Raises:
        LedgerError: if one is not whole.
    """
    run, folder = context.params.run, context.workspace / RECEIPTS
    models = (f"models/{name}" for name in (*run.dp_train, *run.discriminator))
    paths = {name: folder / f"{name}.json" for name in (*models, *run.evaluate)}
    return {name: read_receipt(path) for name, path in paths.items() if path.is_file()}


def _check_models(run: RunSettings, name: str, found: Mapping[str, Receipt]) -> Iterator[str]:
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
    voted = [behind[name] for behind in (run.vote_select, run.restate) if name in behind]
    for source in (*voted, *run.choose.get(name, ())):
        if not _charges(found.get(source)) <= receipt.charges:
            yield f"it does not count the variant {source!r} that it is made of as that was last made"


def _charges(receipt: Receipt | None) -> frozenset[str]:
    return frozenset() if receipt is None else receipt.charges
