"""`palimpsest verify`: do the receipts say what the ledger says, and do two accountants agree?"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting as dpa
from rich.console import Console

from palimpsest.cli.context import Context, opened
from palimpsest.files import read_json
from palimpsest.privacy import accounting, events
from palimpsest.privacy.ledger import Charge

_TOLERANCE = 1e-6


def verify_workspace(workspace: Path) -> int:
    """Print one line per check; 0 if all hold, 1 otherwise."""
    context, console = opened(workspace), Console()
    entries = context.ledger.verify()
    console.print(f"[green]holds[/green]  the ledger's chain of {entries} entries is whole")
    failures = 0
    for name in context.params.run.dp_lm:
        path = workspace / "reports" / "receipts" / f"{name}.json"
        if not path.is_file():
            console.print(f"[yellow]absent[/yellow] {name}: no receipt; it has not run")
            continue
        for problem in check_receipt(context, read_json(path)):
            failures += 1
            console.print(f"[red]fails[/red]  {name}: {problem}")
        console.print(f"[green]done[/green]   {name}: receipt compared with the ledger, epsilon recomputed twice")
    return 1 if failures else 0


def check_receipt(context: Context, receipt: dict[str, Any]) -> Iterator[str]:
    """What does not hold in one receipt: charges, states, both epsilons, the target."""
    ledgered = {charge.id: charge for charge in context.ledger.charges(context.asset.name)}
    own = [ledgered.get(line["charge"]) for line in receipt["queries"]]
    if any(charge is None for charge in own):
        yield "the ledger does not know a charge of this receipt"
        return
    yield from _check_charges(receipt, own)  # type: ignore[arg-type]
    yield from _check_epsilons(context, receipt, own)  # type: ignore[arg-type]


def _check_charges(receipt: dict[str, Any], own: list[Charge]) -> Iterator[str]:
    for line, charge in zip(receipt["queries"], own, strict=True):
        if charge.state != "committed":
            yield f"charge {charge.id} is {charge.state}, not committed"
        if events.from_json(line["event"]) != charge.event:
            yield f"charge {charge.id} has another event in the ledger"
        if charge.purpose != receipt["purpose"]:
            yield f"charge {charge.id} has purpose {charge.purpose} in the ledger"


def _check_epsilons(context: Context, receipt: dict[str, Any], own: list[Charge]) -> Iterator[str]:
    event = dpa.ComposedDpEvent([charge.event for charge in own])
    if not accounting.is_private(event):
        if receipt["purpose"] == "release":
            yield "it is marked for release and adds no noise"
        return
    delta = context.asset.delta - sum(charge.own_delta for charge in own)
    for accountant in ("pld", "rdp"):
        again = accounting.epsilon(event, delta, accountant)
        if not math.isclose(again, receipt[f"epsilon_{accountant}"], rel_tol=_TOLERANCE):
            yield f"epsilon by {accountant} is {again:.6f}; the receipt says {receipt[f'epsilon_{accountant}']:.6f}"
    if receipt["epsilon_pld"] > receipt["epsilon_target"] * (1 + _TOLERANCE):
        yield "its proved epsilon is above its target"
    if receipt["epsilon_pld"] > receipt["epsilon_rdp"] * (1 + 1e-3):
        yield "the two accountants disagree: PLD is above RDP"
