"""The checks of `palimpsest run` before any stage starts; they cost nothing."""

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palimpsest.cli.context import Context
from palimpsest.cli.graph import find_upstream
from palimpsest.devices import AUTO, CPU, CUDA, HALF, device, has_bfloat16, resolve_device
from palimpsest.errors import BudgetExceeded, DataError, ParamsError
from palimpsest.graph.stages import SPENDERS
from palimpsest.methods.registry import method
from palimpsest.methods.shared.tools import Reads
from palimpsest.params.load import device_of
from palimpsest.params.schema import DpLmVariant, Params
from palimpsest.privacy.shown import delta_down, delta_up, down, up
from palimpsest.records.vouched import EMBEDDED
from stages.common import processes
from stages.vouching import require_vouched

if TYPE_CHECKING:
    from palimpsest.cli.plan import Priced  # it loads the accountants

RELEASING = "release"  # the stage
_FREE_BYTES = 300 * 1024**2
_BUSY = 128  # rows that keep a GPU at work


def check_release(params: Params, targets: Sequence[str]) -> None:
    """Check that a release that is asked for by name has something to release."""
    if RELEASING in targets and not params.release.variants:
        allowed = ", ".join(params.may_leave) or "none yet"
        raise ParamsError(
            "release.variants in params.yaml names nothing to release.", f"Name variants there; allowed are: {allowed}."
        )


def check_files(context: Context) -> None:
    """Check that inputs exist, nothing private is named as public, the workspace can be written, the disk has room."""
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


def check_device(workspace: Path) -> None:
    """Check that the named device is there, for each process of a training; torch is loaded where one is named."""
    wanted = device_of(workspace)
    if wanted not in (AUTO, CPU):
        resolve_device(wanted, processes() - 1, processes())  # the last of them that train together


def describe_emulated(params: Params, stages: Collection[str]) -> list[str]:
    """Return sentences about stages among `stages` that would compute in bf16 although this machine emulates it."""
    told = dict.fromkeys(stage for stage, own in _list_precisions(params) if getattr(own, "precision", None) == HALF)
    slow = "this machine emulates bf16, which takes many times as long as precision: float32."
    found = [f"{stage}: {slow}" for stage in told if stage in stages]
    return [] if not found or has_bfloat16() else found


def _list_precisions(params: Params) -> Iterator[tuple[str, object]]:
    """Yield the stages in which a language model trains, reads or writes, with settings that may name a precision."""
    yield "pretrain", params.models.embedded_lm if params.models.lm == EMBEDDED else None
    yield "pretrain", params.models.prompts
    yield "public_lm", params.public_lm
    yield from ((f"teach_similar@{name}", own) for name, own in params.taught.items())
    yield from ((f"decoder_pretrain@{name}", own) for name, own in params.decoders.items())
    yield from ((f"dp_train@{name}", own.train) for name, own in params.lms.items())
    yield from ((f"zero_shot@{name}", params.authors[author]) for name, author in params.run.zero_shot.items())
    for name in params.run.evaluate:
        variant = params.variants[name]
        if isinstance(variant, DpLmVariant):
            yield f"pplm_generate@{name}", variant.generate
            continue
        known = method(variant.method)
        yield f"{known.stage}@{name}", getattr(variant, known.name)
        if Reads.AUTHOR in known.reads:
            yield f"{known.stage}@{name}", params.authors[getattr(params.run, known.stage)[name]]


def describe_idle(params: Params, stages: Collection[str]) -> list[str]:
    """Return sentences about private trainings of a named model, among `stages`, that leave a CUDA device idle."""
    sizes = {name: lm.train.micro_batch for name, lm in params.lms.items() if f"dp_train@{name}" in stages}
    small = [name for name, size in sizes.items() if size < _BUSY]
    if params.models.lm == EMBEDDED or not small or device().type != CUDA:
        return []
    slow = f"leaves a GPU idle, which reads {_BUSY} rows in little more time than 16."
    now = "Raise it now if memory allows: once this training is charged, another micro_batch is another training."
    return [f"{name}: micro_batch {sizes[name]} {slow} {now}" for name in small]


def select_needed(context: Context, targets: Sequence[str], changed: Collection[str]) -> set[str]:
    """Return the changed stages that `targets` need, or all changed stages without targets."""
    return {*changed} & find_upstream(context.workspace, targets) if targets and changed else {*changed}


def select_due(context: Context, needed: Collection[str]) -> "list[Priced]":
    """Return the stages that have to run and would spend, with their plans; some of them may be paid for."""
    names = {name for name in needed if name.partition("@")[0] in SPENDERS}
    if not names:
        return []  # and the accountants need not be loaded
    from palimpsest.cli.plan import price_all

    return [item for item in price_all(context, only_pending=True) if item.stage in names]


def check_budget(context: Context, spending: "Sequence[Priced]") -> None:
    """Stop before the first stage if what is due would pass the budget.

    Raises:
        BudgetExceeded: saying what is spent, what is asked and what is left.
    """
    if not spending:
        return
    from palimpsest.cli.plan import balance_after, is_paid
    from palimpsest.privacy.ledger.rules import GIVE_BACK, full_budget_error, has_waiting

    for item in spending:
        if not item.plan.feasible:
            raise ParamsError(
                f"{item.name}: {' '.join(item.plan.notes)}.", "Change its settings, or take it out of run."
            )
    charges = context.ledger.charges(context.asset.name)
    variants = [item for item in spending if item.purpose == "release" and not is_paid(context, item, charges)]
    if not variants:  # nothing more is asked: a cap that was lowered since stops only new charges
        return
    _check_share(context, variants)
    after = balance_after(context, variants)
    if after.fits:
        return
    if after.beside > after.most_beside:
        raise BudgetExceeded(
            f"The deltas that no event carries would add up to {delta_up(after.beside)}; all releases of asset "
            f"{context.asset.name!r} together may take {delta_down(after.most_beside)}.",
            "Nothing was charged and no row was read. Lower delta_share of a variant.",
        )
    if full := context.ledger.books().filling_faults(context.asset.name):
        raise full_budget_error(context.asset.name, full)
    balance = context.ledger.balance(context.asset.name)
    back = GIVE_BACK if has_waiting(charges) else ""
    raise BudgetExceeded(
        f"The pending models ({', '.join(item.name for item in variants)}) would pass the budget of asset "
        f"{context.asset.name!r}: spent epsilon {up(balance.spent)}, asked {up(after.spent - balance.spent)} more, "
        f"left {down(balance.left)} of {context.asset.epsilon:g}.",
        "Nothing was charged and no row was read. Lower an epsilon, take a model out of `run`, or, if the data's "
        f"owner agrees, raise the cap with `palimpsest register --amend`.{back}",
    )


def _check_share(context: Context, variants: "list[Priced]") -> None:
    """Stop as `check_budget` does, for the share of the team that asks, where teams share the data set."""
    from palimpsest.cli.plan import balance_after
    from palimpsest.privacy.ledger.rules import TEAM, resolve_team

    team = resolve_team(context.asset, os.environ.get(TEAM) or None)
    if team is None:
        return
    after = balance_after(context, variants, team=team)
    if after.spent > after.cap:
        raise BudgetExceeded(
            f"The pending models ({', '.join(item.name for item in variants)}) would pass the share of team {team!r} "
            f"in asset {context.asset.name!r}: epsilon {up(after.spent)} after them, of {after.cap:g}.",
            "Nothing was charged and no row was read. Lower an epsilon, take a model out of `run`, or, if the data's "
            "owner agrees, raise the team's cap with `palimpsest ledger team`.",
        )
