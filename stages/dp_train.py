"""Fit one language model of `dp_lm` to the private rows: a stage that spends budget.

Started by `torchrun`, or with PALIMPSEST_PROCESSES=n in the environment, n processes share every batch.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from palimpsest.files import write_json
from palimpsest.methods.shared.base import Plan, Saved, Training
from palimpsest.methods.shared.method import Basis
from palimpsest.methods.shared.tools import Reads
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Run
from palimpsest.privacy.ledger.witness import receipt_heads
from palimpsest.privacy.query import View
from palimpsest.privacy.receipt import Receipt
from palimpsest.privacy.session import metered, paid_charges, receipt, verified
from palimpsest.records.vouched import weights
from palimpsest.training.checkpoint import find_checkpoint, forget_checkpoints
from palimpsest.training.team import Team, joined
from palimpsest.training.views import Follower, Leader
from palimpsest.workspace import CHECKPOINTS, MODEL_RECEIPTS, MODELS, RECEIPTS
from stages.common import start_processes
from stages.models import note_fitted, receipt_of
from stages.spenders import spender
from stages.spending import identify, private_rows, tell
from stages.tools import Artifacts, nothing_vouched


def run(name: str) -> None:
    """data/private/train.parquet, models/base -> models/<name>, reports/receipts/models/<name>.json."""
    train(name)


def train(name: str, vouched: Callable[[Params, str], Path] = nothing_vouched) -> None:
    """Build a training from its declaration, and fit it.

    Args:
        name: of the model.
        vouched: where a public source lies that params.yaml names.
    """
    params = load()
    found = spender(params, name)
    below = found.origin if Reads.FITTED in found.method.reads else None
    before = spender(params, below).plan(params, Basis()) if below else None
    plan = found.plan(params, Basis() if before is None else Basis(before.event, before.own_delta))
    tools = Artifacts(params, found, vouched, CHECKPOINTS)
    identity = identify(params, found, plan, *tools.digests())
    training: Training[Saved] = found.method.build(found.settings, plan, tools)
    receipt = receipt_of(below) if below else None
    fit(params, identity, plan, training.ask, receipt, assumptions=training.assumptions())


def fit(
    params: Params,
    run: Run,
    plan: Plan,
    ask: Callable[[View], Saved],
    before: Receipt | None = None,
    assumptions: Collection[str] = (),
) -> None:
    """Reserve, ask, save and write the receipt, in as many processes as there are.

    Args:
        run: what makes a retry the same plan; its variant names the model.
        plan: what is reserved.
        ask: asks the plan's queries and returns the fitted model.
        before: the receipt of the model it builds on; what that assumed of the machine is assumed here, too.
        assumptions: what this training assumes of it, ids of `privacy.assumptions`.

    Raises:
        LedgerError: before a row is read: the budget does not allow it, or `before` is not this ledger's; or before a
            query is asked: a process has other rows than the run's.
    """
    with joined() as team:
        if team.leads:
            _lead(params, run, plan, ask, before, assumptions, team)
        else:
            key = team.share(None)  # once the leader has reserved
            rows = verified(private_rows(), run, key)
            team.meet()
            ask(Follower(rows, team))


def continues(charge: Charge, workspace: Path = Path()) -> bool:
    """Whether a training that began and was stopped can go on in this workspace, under the same charge."""
    if charge.steps is None or charge.noise_fixed:
        return False
    return find_checkpoint(workspace / CHECKPOINTS, charge.id, charge.steps_begun) is not None


def _lead(
    params: Params,
    run: Run,
    plan: Plan,
    ask: Callable[[View], Saved],
    before: Receipt | None,
    assumptions: Collection[str],
    team: Team,
) -> None:
    ledger, name = Ledger.open(ledger_url(params)), run.variant
    asset, noise = ledger.asset(params.dataset.asset), NoiseSource(params.testing.noise_seed)
    paid = [charge.id for charge in paid_charges(ledger, asset.name, before, run.purpose)] if before else []
    asked = ledger, params.schema_of_data, run, plan.queries
    with metered(*asked, private_rows, noise, continues, receipt_heads(RECEIPTS, asset.name)) as session:
        tell(session.reservation, ledger.balance(asset.name).left)
        team.share(asset.key)
        team.meet()  # nothing begins before every process has the run's rows
        ask(Leader(session.view, team)).save(MODELS / name)
        note_fitted(MODELS / name)
    for charge in session.reservation.charges:
        forget_checkpoints(CHECKPOINTS, charge.id)
    target, assumed = params.fitted[name].epsilon, {*assumptions, *(before.assumptions if before else ())}
    found = receipt(ledger, asset, session, method="dp_lm", target=target, before=paid, assumptions=assumed)
    found = replace(found, plan=dict(plan.numbers), weights=weights(MODELS / name))
    write_json(MODEL_RECEIPTS / f"{name}.json", found.to_json())


if __name__ == "__main__":
    start_processes(run)
