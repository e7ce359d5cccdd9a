"""`palimpsest verify`: do the receipts say what the ledger says, and do the accountants agree?"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from palimpsest.cli.console import console
from palimpsest.cli.context import Context, opened
from palimpsest.errors import LedgerError
from palimpsest.files import read_json
from palimpsest.params.schema import Run
from palimpsest.privacy import accounting, events, fourier
from palimpsest.privacy.ledger import Asset, Charge, composed
from palimpsest.report.release.covered import close, equal

_TOLERANCE = 1e-6


def verify_workspace(workspace: Path) -> int:
    """Print one line per check; 0 if all hold, 1 otherwise."""
    context, out = opened(workspace), console()
    found = receipts(context)
    entries = context.ledger.verify([receipt["ledger_head"] for receipt in found.values() if "ledger_head" in receipt])
    out.print(f"[green]holds[/green]  the ledger's chain of {entries} entries is whole")
    failures = 0
    for name in found:
        problems = problems_of(context, name, found)
        failures += len(problems)
        for problem in problems:
            out.print(f"[red]fails[/red]  {name}: {escape(problem)}", soft_wrap=True)
        if not problems:
            out.print(f"[green]holds[/green]  {name}: the receipt is the ledger's; {_confirmed(found[name])}")
    return 1 if failures else 0


def _confirmed(receipt: Mapping[str, Any]) -> str:
    if receipt["accountant"] == "rdp":
        return "its epsilon is that of the one accountant that takes all of its events (RDP)"
    return f"both accountants ({receipt['accountant'].upper()}, RDP) give its epsilon"


def receipts(context: Context) -> dict[str, dict[str, Any]]:
    """The receipts of the fitted models, of the variants drawn from them and of those that were charged themselves.

    Only of those that have run.

    Raises:
        LedgerError: if one is not JSON.
    """
    run, folder = context.params.run, context.workspace / "reports" / "receipts"
    models = (f"models/{name}" for name in (*run.dp_train, *run.discriminator))
    names = [*models, *run.evaluate]
    paths = {name: folder / f"{name}.json" for name in names}
    try:
        return {name: dict(read_json(path)) for name, path in paths.items() if path.is_file()}
    except ValueError:
        raise LedgerError(
            "A receipt is not JSON: it was changed by hand.", "Make it again with `palimpsest run`."
        ) from None


def problems_of(context: Context, name: str, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What does not hold in one receipt; a field that is missing or of another type is one problem."""
    try:
        return [*_check_models(context.params.run, name, found), *check_receipt(context, found[name])]
    except (KeyError, TypeError, ValueError) as error:
        return [f"it is not a whole receipt ({type(error).__name__})"]


def check_receipt(context: Context, receipt: Mapping[str, Any]) -> Iterator[str]:
    """What does not hold in one receipt: its terms, charges and states, the epsilons and what follows from them.

    All is recomputed from the ledger's own charges, their partitions too; the receipt only names them.
    """
    ledgered = {charge.id: charge for charge in context.ledger.charges(context.asset.name)}
    own = [ledgered.get(line["charge"]) for line in receipt["queries"]]
    if not own or any(charge is None for charge in own):
        yield "the ledger does not know a charge of this receipt"
        return
    charges = [charge for charge in own if charge is not None]
    yield from _check_terms(context.asset, receipt, charges)
    yield from _check_charges(receipt, charges)
    runs = {_run(charge) for charge in charges}
    siblings = {charge.id for charge in ledgered.values() if _run(charge) in runs and charge.state == "committed"}
    if siblings != {charge.id for charge in charges}:
        yield "it does not list every charge of its runs"
    yield from _check_epsilons(context.asset, receipt, charges)


def _check_models(run: Run, name: str, found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A variant's receipt is that of its model as it was last fitted; a discriminator's counts its language model's."""
    own, receipt = name.removeprefix("models/"), found[name]
    model = run.dp_lm.get(name, own)  # a fitted model's receipt, and a written variant's, is its own
    if (receipt["model"], receipt["variant"]) != (model, own):
        yield f"it is the receipt of {receipt['variant']!r}, drawn from {receipt['model']!r}, not from {model!r}"
    if name in run.dp_lm and {**receipt, "variant": model} != found.get(f"models/{model}"):
        yield f"it is not that of model {model!r} as it was last fitted: draw again with `palimpsest run`"
    below = found.get(f"models/{run.discriminator.get(model)}", {"queries": []})
    if not _ids(below) <= _ids(receipt):
        yield f"it does not count the language model {run.discriminator[model]!r} as it was last fitted"
    source = run.vote_select.get(name)
    if source is not None and not _ids(found.get(source, {"queries": []})) <= _ids(receipt):
        yield f"it does not count the variant {source!r} that it chooses from as that was last made"


def _ids(receipt: Mapping[str, Any]) -> set[str]:
    return {line["charge"] for line in receipt["queries"]}


def _run(charge: Charge) -> tuple[str, int]:
    return charge.run_key, charge.run


def _check_terms(asset: Asset, receipt: Mapping[str, Any], own: Sequence[Charge]) -> Iterator[str]:
    terms = {
        "model": own[-1].variant,
        "stage": own[-1].stage,
        "purpose": own[-1].purpose,
        "asset": asset.name,
        "delta": asset.delta,
        "unit": asset.unit,
        "adjacency": asset.adjacency,
        "noise_fixed": any(charge.noise_fixed for charge in own),
        "run": own[-1].run,
        "accountant": accounting.primary(composed(own)),
    }
    for field, value in terms.items():
        if receipt[field] != value:
            yield f"{field} is {value!r}; the receipt says {receipt[field]!r}"


def _check_charges(receipt: Mapping[str, Any], own: Sequence[Charge]) -> Iterator[str]:
    for line, charge in zip(receipt["queries"], own, strict=True):
        if charge.state != "committed":
            yield f"charge {charge.id} is {charge.state}, not committed"
        said = (line["name"], line["model"], events.from_json(line["event"]), line["own_delta"], line["state"])
        if said != (charge.query, charge.variant, charge.event, charge.own_delta, charge.state):
            yield f"charge {charge.id} has another name, model, event, delta or state in the ledger"
        if line["partition"] != (None if charge.partition is None else list(charge.partition)):
            yield f"charge {charge.id} is of another part of the data set in the ledger"
        if receipt["purpose"] == "release" and charge.purpose != "release":
            yield f"charge {charge.id} is of a reference run, outside the total; nothing released may build on it"


def _check_epsilons(asset: Asset, receipt: Mapping[str, Any], own: Sequence[Charge]) -> Iterator[str]:
    event = composed(own)
    if not accounting.is_private(event):
        if receipt["purpose"] == "release":
            yield "it is marked for release and adds no noise"
        return
    beside = sum(charge.own_delta for charge in own)
    delta = asset.delta - beside
    for field, accountant in (("epsilon", accounting.primary(event)), ("epsilon_rdp", "rdp")):
        again = accounting.epsilon(event, delta, accountant)
        if not close(again, receipt[field]):
            yield f"epsilon by {accountant} is {again:.6f}; the receipt says {receipt[field]}"
    second = fourier.epsilon(event, delta)
    if second is not None and second.low > receipt["epsilon"] * (1 + 1e-3):
        yield f"the Fourier accountant gives at least {second.low:.6f}, above the receipt's epsilon"
    groups = [(accounting.group_epsilon(event, row["k"], asset.delta, beside), row) for row in receipt["group"]]
    if any(not close(again, row["epsilon"]) for again, row in groups):
        yield "the epsilons of its groups are others"
    alpha, beta = accounting.trade_off(event)
    if not (equal(alpha, receipt["curve"]["alpha"]) and equal(beta, receipt["curve"]["beta"])):
        yield "its trade-off curve is another"
    if receipt["epsilon_target"] is None or receipt["epsilon"] > receipt["epsilon_target"] * (1 + _TOLERANCE):
        yield "its proved epsilon is above its target"
    if receipt["epsilon"] > receipt["epsilon_rdp"] * (1 + 1e-3):
        yield f"the two accountants disagree: {accounting.primary(event).upper()} is above RDP"
