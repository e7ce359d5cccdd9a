"""What `palimpsest run` checks before any stage starts; it costs nothing."""

import os
import shutil
from collections.abc import Sequence

from palimpsest.cli.context import Context
from palimpsest.cli.graph import stale, upstream
from palimpsest.errors import BudgetExceeded, DataError, ParamsError
from palimpsest.graph.stages import SPENDERS
from palimpsest.params.schema import Params
from stages.vouching import require_vouched

RELEASING = "release"  # the stage
_FREE_BYTES = 300 * 1024**2


def check_release(params: Params, targets: Sequence[str]) -> None:
    """A release that is asked for by name has something to release."""
    if RELEASING in targets and not params.release.variants:
        allowed = ", ".join(params.may_leave) or "none yet"
        raise ParamsError(
            "release.variants in params.yaml names nothing to release.", f"Name variants there; allowed are: {allowed}."
        )


def check_files(context: Context) -> None:
    """Inputs exist, nothing private is named as public, the workspace can be written, the disk has room."""
    params, workspace = context.params, context.workspace
    require_vouched(params, workspace)
    data = params.dataset
    named = {"dataset.private": data.private, "dataset.test": data.test, "dataset.public": data.public}
    for key, path in named.items():
        if params.world is None and path is not None and not (workspace / path).is_file():
            raise DataError(
                f"{key} is {path!r} in params.yaml: there is no such file.", "Correct the path, or restore the file."
            )
    if not os.access(workspace, os.W_OK):
        raise DataError("The workspace may not be written.", "Give yourself write permission, or copy it elsewhere.")
    if shutil.disk_usage(workspace).free < _FREE_BYTES:
        raise DataError("The disk is nearly full.", f"Free at least {_FREE_BYTES // 1024**2} MB and run again.")


def check_budget(context: Context, targets: Sequence[str]) -> None:
    """Stop before the first stage if the pending models, those that `targets` need or all, would pass the budget.

    Raises:
        BudgetExceeded: saying what is spent, what is asked and what is left.
    """
    asked = spending(context, targets)
    if not asked:
        return  # nothing will spend, and pricing would load the models' libraries
    from palimpsest.cli.plan import asked_delta, asked_total, priced

    pending = priced(context, only_pending=True)
    for item in pending:
        if item.stage in asked and not item.plan.feasible:
            raise ParamsError(
                f"{item.name}: {' '.join(item.plan.notes)}.", "Change its settings, or take it out of run."
            )
    variants = [item for item in pending if item.purpose == "release" and item.stage in asked]
    after, beside = asked_total(context, variants), asked_delta(context, variants)
    most = context.asset.delta - context.asset.filter_delta
    if beside > most:
        raise BudgetExceeded(
            f"The deltas that no event carries would add up to {beside:.3g}; all releases of asset "
            f"{context.asset.name!r} together may take {most:.3g}.",
            "Nothing was charged and no row was read. Lower selection.delta_share of a variant of method embed.",
        )
    if after <= context.asset.epsilon:
        return
    balance = context.ledger.balance(context.asset.name)
    raise BudgetExceeded(
        f"The pending models ({', '.join(item.name for item in variants)}) would pass the budget of asset "
        f"{context.asset.name!r}: spent epsilon {balance.spent:.3f}, asked {after - balance.spent:.3f} more, left "
        f"{balance.left:.3f} of {context.asset.epsilon:g}.",
        "Nothing was charged and no row was read. Lower an epsilon, take a model out of `run`, or, if the data's "
        "owner agrees, raise the cap with `palimpsest register --amend`.",
    )


def spending(context: Context, targets: Sequence[str]) -> set[str]:
    """The stages that would spend: those that `targets` need or all, and that something changed for."""
    spenders = {name for name in stale(context.workspace) if name.partition("@")[0] in SPENDERS}
    return spenders & upstream(context.workspace, targets) if targets and spenders else spenders
