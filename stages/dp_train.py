"""Fits one language model of `dp_lm` to the private rows: a stage that spends budget.

Started by `torchrun`, or with PALIMPSEST_PROCESSES=n in the environment, n processes share every batch.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from palimpsest.errors import LedgerError
from palimpsest.files import write_json
from palimpsest.graph.closure import digest
from palimpsest.methods.shared.base import Plan, Saved, Training
from palimpsest.methods.shared.method import Basis, Reads
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Run
from palimpsest.privacy.query import View
from palimpsest.privacy.receipt import Receipt
from palimpsest.privacy.session import paid_charges, receipt, verify_rows
from palimpsest.records.vouched import weights
from palimpsest.training.checkpoint import find_checkpoint, forget_checkpoints, steps_of
from palimpsest.training.dpsgd import Follower, Leader
from palimpsest.training.team import Team, join_team
from palimpsest.workspace import CHECKPOINTS, MODEL_RECEIPTS, MODELS
from stages import resuming
from stages.common import start_processes
from stages.resuming import note_fitted, receipt_of
from stages.spenders import modules, spender
from stages.spending import identify, open_charged, private_rows
from stages.tools import Artifacts
from stages.vouching import resolve_vouched


def run(name: str, artifacts: Callable[..., Artifacts] = Artifacts) -> None:
    """data/private/train.parquet, models/base -> models/<name>, reports/receipts/models/<name>.json.

    `artifacts` makes the artifacts of the method: an `Artifacts`, or a class that can hand over more.
    """
    params = load()
    model = spender(params, name)
    below = model.origin if Reads.FITTED in model.method.reads else None
    before = spender(params, below).plan(params, Basis()) if below else None
    plan = model.plan(params, Basis() if before is None else Basis(before.event, before.own_delta))
    tools = artifacts(params, model, resolve_vouched, CHECKPOINTS)
    identity, provenance = identify(params, model, plan), tools.provenance()
    training: Training[Saved] = model.method.build(model.settings, plan, tools)
    made = Fitting(identity, plan, training.ask, provenance, digest(*modules(model.method)), training.assumptions())
    fit(params, made, receipt_of(below) if below else None)


@dataclass(frozen=True)
class Fitting:
    """A model to fit."""

    run: Run  # identifies a retry as the same plan; its variant names the model
    plan: Plan
    ask: Callable[[View], Saved]  # asks the plan's queries and returns the fitted model
    provenance: str = ""  # distinguishes the public sources of the base model
    code: str = ""  # digest of the code
    assumptions: Collection[str] = ()  # assumptions of this training about the machine, ids of `privacy.planned`

    @property
    def shared(self) -> tuple[str, str, str]:
        """The values that processes that train together must have in common."""
        return self.run.key, self.provenance, self.code


def fit(params: Params, fitting: Fitting, before: Receipt | None = None) -> None:
    """Reserve, ask, save and write the receipt, in all processes of the team.

    Args:
        before: the receipt of the model it builds on; its assumptions about the machine hold here, too.

    Raises:
        LedgerError: before a row is read: the budget does not allow it, `before` is not this ledger's, or a process is
            at another run than the one that leads; or before a query is asked: a process has other rows than the run's.
    """
    run = fitting.run
    with join_team() as team:
        if not team.leads:
            told = team.share(None)  # once the leader has reserved
            if not told:
                return  # it put back the model of an earlier run
            key, leading = told
            _require_same(fitting, leading)
            rows = verify_rows(private_rows(), run, key)
            team.meet()
            fitting.ask(Follower(rows, team))
            return
        ledger, name = Ledger.open(ledger_url(params)), run.variant
        asset = ledger.asset(params.dataset.asset)
        paid = [charge.id for charge in paid_charges(ledger, asset.name, before, run.purpose)] if before else []
        again = resuming.restore_outputs(run, ledger.charges(asset.name), fitting.provenance, fitting.code)
        if again:
            team.share(None)
        session, facts = again or _fit_anew(params, ledger, fitting, team)
        for charge in session.reservation.charges:
            forget_checkpoints(CHECKPOINTS, charge.id)
        assumed = {*facts["assumptions"], *(before.assumptions if before else ())}
        target = params.fitted[name].epsilon
        written = receipt(ledger, asset, session, method="dp_lm", target=target, before=paid, assumptions=assumed)
        written = replace(written, plan=dict(fitting.plan.numbers), weights=weights(MODELS / name))
        write_json(MODEL_RECEIPTS / f"{name}.json", written.to_json())


def _require_same(fitting: Fitting, leading: Sequence[str]) -> None:
    """Check that a following process shares with the leading one what it must.

    Raises:
        LedgerError: it has other settings, code, public models or rows.
    """
    if fitting.shared != tuple(leading):
        raise LedgerError(
            "A process is at another run than the one that leads it: settings, code, public models or rows differ.",
            "No query was asked. Give every machine the same workspace and the same version, then run again.",
        )


def _fit_anew(params: Params, ledger: Ledger, fitting: Fitting, team: Team) -> resuming.Again:
    """Reserve, train together and save the model; return what is known of it then."""
    run, provenance = fitting.run, fitting.provenance
    folder = MODELS / run.variant
    with open_charged(params, ledger, run, fitting.plan, continues, provenance) as session:
        team.share((ledger.asset(params.dataset.asset).key, fitting.shared))
        team.meet()  # nothing begins before every process has the run's rows
        fitting.ask(Leader(session.view, team)).save(folder)
        note_fitted(folder)
        facts = {"assumptions": sorted(fitting.assumptions)}
        if run.purpose == "release":
            resuming.keep(run, [folder], facts, provenance, fitting.code)
    return resuming.Again(session, facts)


def continues(charge: Charge, workspace: Path = Path()) -> bool:
    """Tell whether a stopped training can go on in this workspace, under the same charge."""
    if charge.steps is None or charge.noise_fixed:
        return False
    if charge.steps_begun == 0:  # it was stopped before its first step, and needs nothing to begin with
        return True
    found = find_checkpoint(workspace / CHECKPOINTS, charge.id, charge.steps_begun)
    return found is not None and (steps_of(found) > 0 or charge.steps_begun < charge.steps)  # else nothing was learned


if __name__ == "__main__":
    start_processes(run)
