"""Makes the rows of one variant: the stage that spends for every method with rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from palimpsest.errors import OtherSubject, ParamsError
from palimpsest.methods.shared.base import Fit, Made, Plan
from palimpsest.methods.shared.method import Basis, Reads
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Closed, Run
from palimpsest.privacy.ledger.rules import compose_charges
from palimpsest.privacy.receipt import read_receipt
from palimpsest.privacy.session import paid_charges, replay_run
from palimpsest.records.texts import keep_whole
from palimpsest.records.write import shuffle_rows, write_synthetic
from palimpsest.workspace import EVOLVED, RECEIPTS, SYNTHETIC
from stages import resuming
from stages.common import start
from stages.spenders import Spender, spender
from stages.spending import identify, open_charged, record
from stages.tools import EncodingTools
from stages.vouching import resolve_vouched


def run(name: str, *_origin: str) -> None:
    """data/private/train.parquet, what the method reads -> data/synthetic/<variant>.*, its receipt, generation.json.

    Methods in rounds also write each round's selection to data/evolved/<variant>.*.

    Raises:
        ParamsError: the plan cannot work; nothing is asked then.
    """
    params = load()
    who, ledger = spender(params, name), Ledger.open(ledger_url(params))
    method, behind = who.method, _charged_basis(params, who, ledger)
    plan = who.plan(params, behind.basis)
    if not plan.feasible:
        raise ParamsError(f"Variant {name!r} cannot work: {' '.join(plan.notes)}", "Change its settings as said.")
    tools = EncodingTools(params, who, resolve_vouched)
    identity = identify(params, who, plan)
    session, facts = _make_rows(params, who, ledger, identity, plan, tools)
    record(params, ledger, session, plan, facts["counts"], behind.charges, {*behind.assumptions, *facts["assumptions"]})
    resuming.forget(method, name, ledger.charges(params.dataset.asset))


def _make_rows(
    params: Params, who: Spender, ledger: Ledger, identity: Run, plan: Plan, tools: EncodingTools
) -> tuple[Closed, Mapping[str, Any]]:
    """Make the rows, from paid answers or, where there are none, from new ones; return the run and its facts."""
    method, provenance = who.method, tools.provenance()
    kept = resuming.folder(method, identity, plan, params.testing.noise_seed is not None)
    fit = method.build(who.settings, plan, replace(tools, kept=kept))
    if again := _replay_rows(params, ledger, identity, plan, fit, provenance):
        return again
    with open_charged(params, ledger, identity, plan, partial(resuming.continues, method), provenance) as session:
        facts = _write(params, who.name, fit.made(fit.ask(session.view)))
    return session, facts


def _replay_rows(
    params: Params, ledger: Ledger, identity: Run, plan: Plan, fit: Fit[Any], provenance: str
) -> tuple[Closed, Mapping[str, Any]] | None:
    """Make the rows of a paid run from its answers, free; None where they are not all kept, or do not fit.

    A fit that asks something else than its answers say goes on to `charged`, which asks for the owner's word.
    """
    session = replay_run(ledger, params.schema_of_data, identity, plan.queries, provenance)
    if session is None:
        return None
    try:
        artifact = fit.ask(session.view)
    except OtherSubject as error:
        print(f"budget: the answers that were paid for cannot be used: {error}", flush=True)
        return None
    print("budget: the rows are made again from answers that were paid for, and nothing is charged", flush=True)
    return session, _write(params, identity.variant, fit.made(artifact))


def _write(params: Params, name: str, made: Made) -> Mapping[str, Any]:
    """Write the rows, and each round's selection; return the facts about them."""
    rows, lost = keep_whole(made.rows, params.dataset.text)
    write_synthetic(shuffle_rows(rows), SYNTHETIC / name, params.dataset.text, params.dataset.label)
    if made.rounds is not None:
        made.rounds(EVOLVED / name)
    counts = {"drawn": made.drawn, "removed": {**made.removed, **lost}, "rows": len(rows), **made.told}
    return {"counts": counts, "assumptions": sorted(made.assumptions)}


@dataclass(frozen=True)
class _Behind:
    """The basis of a variant: public facts of it, its charges, and the assumptions made for them."""

    basis: Basis
    charges: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def _charged_basis(params: Params, who: Spender, ledger: Ledger) -> _Behind:
    """Return the basis as it was charged: another variant's rows are paid for together with the choice among them."""
    if Reads.AUTHOR in who.method.reads:
        return _Behind(Basis(author=params.authors[str(who.origin)]))
    if not who.method.reads & {Reads.SOURCE, Reads.SOURCES}:
        return _Behind(Basis())
    receipts = [read_receipt(RECEIPTS / f"{name}.json") for name in who.origins or (who.origin,)]
    found = (paid_charges(ledger, params.dataset.asset, each, who.target.purpose) for each in receipts)
    paid = {charge.id: charge for own in found for charge in own}  # a model behind two of them was charged once
    basis = Basis(compose_charges(paid.values()), sum(charge.own_delta for charge in paid.values()))
    return _Behind(basis, tuple(paid), tuple({what: None for each in receipts for what in each.assumptions}))


if __name__ == "__main__":
    start(run)
