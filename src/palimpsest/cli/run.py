"""`palimpsest run`: checks that cost nothing, the owner's word where rows would leave, then `dvc repro` or the flow."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from palimpsest.cli.context import Context, environment, opened
from palimpsest.cli.graph import stage_names, stale, upstream
from palimpsest.cli.render import render
from palimpsest.cli.report import show_report
from palimpsest.errors import BudgetExceeded, DataError, ParamsError
from palimpsest.files import make_folder
from palimpsest.graph.stages import SPENDERS
from palimpsest.report.release.word import VARIABLE, YES, record
from palimpsest.workspace import TWINS
from stages.vouching import require_vouched
from stages.warm import serving

HELD_BACK = 3  # exit status: all went well, and the owner's word for the release was not given
_FREE_BYTES = 300 * 1024**2
_RELEASE = "release"  # the stage
_QUESTION = (
    "This run would release rows of {}. Audits of private rows are in reports/internal.html, in the private zone; by "
    "default the release does not depend on them. Do you give the word of the owner of the data for this release? [y/N]"
)


def run_workspace(
    workspace: Path,
    targets: list[str],
    *,
    ui: bool,
    stay: bool,
    yes: bool = False,
    reason: str | None = None,
    workers: int | None = None,
) -> int:
    """Bring the workspace up to date; the exit status of the runner, or `HELD_BACK`. No targets are all stages.

    Raises:
        PalimpsestError: found by the checks, before any stage starts and before any charge.
    """
    render(workspace)
    context = opened(workspace)
    check_files(context)
    if not ui and up_to_date(workspace, targets):
        print("Everything is up to date: nothing ran, and nothing was charged.")
        if not targets:
            show_report(workspace)
        return 0
    check_budget(context, targets)
    for flag in context.params.flags():
        print(f"flag: {flag}", file=sys.stderr)
    make_folder(workspace / TWINS)
    word = _owners_word(context, targets, yes=yes, reason=reason)
    chosen = _without_release(workspace, targets) if word is False else targets
    variables = {VARIABLE: YES if word else ""}  # what the shell exported is no answer to this run's question
    code = 0
    if chosen or not targets:
        with serving({**environment(), **variables}) as warm:
            variables |= warm
            if ui:
                code = _flow(workspace, chosen, stay, workers, variables)
            else:
                run = _repro if workers is None else partial(_side_by_side, workers)
                code = run(workspace, chosen, variables)
    if code == 0 and not targets:
        show_report(workspace)
    if word is False:
        print(f"Nothing was released: the owner's word was not given. Exit status {code or HELD_BACK}.")
        return code or HELD_BACK
    return code


def up_to_date(workspace: Path, targets: Sequence[str]) -> bool:
    """Whether a run of these stages, or of all where none is named, would find nothing to do; asked of DVC once.

    Of a target that is no stage's whole name DVC itself must tell.
    """
    changed = stale(workspace)
    if not changed or not targets:
        return not changed and set(targets) <= set(stage_names(workspace) if targets else ())
    return not changed & upstream(workspace, targets)


def _owners_word(context: Context, targets: Sequence[str], *, yes: bool, reason: str | None) -> bool | None:
    """The answer, recorded with its reason in the private zone; `yes` answers in place of the terminal.

    None where the run would release nothing, and nobody is asked.
    """
    variants = context.params.release.variants
    if not variants or (targets and _RELEASE not in targets) or _RELEASE not in stale(context.workspace):
        return None
    given = yes or _asked(variants)
    record(context.workspace, variants, given, reason)
    return given


def _without_release(workspace: Path, targets: Sequence[str]) -> list[str]:
    """The same targets, or all stages where none is named, but for the releasing one."""
    return [name for name in targets or stage_names(workspace) if name != _RELEASE]


def _asked(variants: Sequence[str]) -> bool:
    """The answer on the terminal; no answer is a no."""
    print(_QUESTION.format(", ".join(variants)), flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False


def check_files(context: Context) -> None:
    """Inputs exist, nothing private is named as public, the workspace can be written, the disk has room."""
    params, workspace = context.params, context.workspace
    require_vouched(params, workspace)
    data = params.dataset
    named = {"dataset.private": data.private, "dataset.test": data.test, "dataset.public": data.public}
    for key, path in named.items():
        if params.world is None and path is not None and not (workspace / path).is_file():
            raise DataError(
                f"There is no file where {key} points.", f"Correct {key} in params.yaml, or restore the file."
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
    spenders = {name for name in stale(context.workspace) if name.partition("@")[0] in SPENDERS}
    asked = spenders & upstream(context.workspace, targets) if targets else spenders
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


def _repro(workspace: Path, targets: list[str], variables: Mapping[str, str]) -> int:
    command = [sys.executable, "-P", "-m", "dvc", "repro", *targets]
    child = subprocess.Popen(command, cwd=workspace, env={**environment(), **variables})
    while True:
        try:
            return int(child.wait() != 0)
        except KeyboardInterrupt:  # the child, in the same terminal, got the signal too and is stopping
            continue


def _side_by_side(workers: int, workspace: Path, targets: list[str], variables: Mapping[str, str]) -> int:
    from flows.side_by_side import bring

    return bring(workspace, targets, workers, variables)


def _flow(workspace: Path, targets: list[str], stay: bool, workers: int | None, variables: Mapping[str, str]) -> int:
    try:
        from flows.ui import run_with_server
    except ModuleNotFoundError:
        raise ParamsError("Prefect is not installed.", "Install the extra: pip install palimpsest[prefect].") from None
    return run_with_server(workspace, stay, targets, workers, variables)
