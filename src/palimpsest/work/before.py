"""Before a run: checks that cost nothing, and a person's word for what it would release or charge again."""

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from palimpsest.devices import AUTO, CPU, CUDA, HALF, device, has_bfloat16, resolve_device
from palimpsest.errors import BudgetExceeded, ConsentNeeded, DataError, LedgerError, ParamsError
from palimpsest.graph.stages import SPENDERS
from palimpsest.methods.registry import method
from palimpsest.methods.shared.method import Reads
from palimpsest.params.load import device_of
from palimpsest.params.schema import DpLmVariant, Params
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.rules import GIVE_BACK, TEAM, charges_again, full_budget_error, has_waiting, resolve_team
from palimpsest.privacy.shown import delta_down, delta_up, down, up
from palimpsest.records.vouched import EMBEDDED
from palimpsest.report.release import word
from palimpsest.work.context import Context, find_upstream, open_workspace, render, stage_names
from stages.common import processes
from stages.vouching import require_vouched

if TYPE_CHECKING:
    from palimpsest.work.plan import Priced

RELEASING = "release"  # the stage
_FREE_BYTES = 300 * 1024**2
_BUSY = 128  # rows that keep a GPU at work
_QUESTION = (
    "This run would release rows of {}. Audits of private rows are in reports/internal.html, in the private zone; by "
    "default the release does not depend on them. Do you give the word of the owner of the data for this release? [y/N]"
)
_AGAIN = (
    "This run would charge {} again: what was charged for it on these data stays charged. The total would go from "
    "epsilon {} to {} of {:g}."
)
_CHARGE = (
    "What DVC's cache still has costs nothing all the same, and so does what was paid for under these settings and can "
    "be made again. Charge again? [y/N]"
)


def check_workspace(workspace: Path, targets: Sequence[str]) -> Context:
    """Return the opened workspace, after the checks that need not know what changed.

    Raises:
        PalimpsestError: one of them fails.
    """
    render(workspace)
    context = open_workspace(workspace)
    check_release(context.params, targets)
    check_files(context)
    check_device(workspace)
    return context


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
    public = data.public if data.written is None else None  # a stage writes it
    named = {"dataset.private": data.private, "dataset.test": data.test, "dataset.public": public}
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
    yield from ((f"write_public@{name}", params.authors[author]) for name, author in params.run.write_public.items())
    for name in params.run.evaluate:
        variant = params.variants[name]
        if isinstance(variant, DpLmVariant):
            yield f"pplm_generate@{name}", variant.generate
            continue
        known = method(variant.method)
        yield f"{known.stage}@{name}", variant.settings
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
    from palimpsest.work.plan import price_all

    return [item for item in price_all(context, only_pending=True) if item.stage in names]


def check_budget(context: Context, spending: "Sequence[Priced]", *, anyway: bool = False) -> None:
    """Stop before the first stage if what is due would pass the budget, or noise would decide and `anyway` is not said.

    What is free if a file holds rows that were charged before is left to its stage, which knows before it charges.

    Raises:
        BudgetExceeded: saying what is spent, what is asked and what is left.
    """
    if not spending:
        return
    from palimpsest.work.plan import balance_after, is_paid, may_be_paid

    for item in spending:
        if not item.plan.feasible:
            raise ParamsError(
                f"{item.name}: {'; '.join(item.plan.notes)}.", "Change its settings, or take it out of run."
            )
    charges = context.ledger.charges(context.asset.name)
    unpaid = [item for item in spending if item.purpose == "release" and not is_paid(context, item, charges)]
    for item in () if anyway else unpaid:
        if item.plan.lost:
            raise ParamsError(
                f"{item.name} would pay for noise: {'; '.join(item.plan.told)}.",
                "Nothing was charged and no row was read. To do it all the same, add --anyway to this command.",
            )
    variants = [item for item in unpaid if not may_be_paid(context, item, charges)]
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
    from palimpsest.work.plan import balance_after

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


def may_charge(who: str, charge: str, kept: str) -> bool:
    """Ask a terminal whether `who` may charge what is said; `kept` says what a refusal has left.

    Raises:
        LedgerError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise LedgerError(f"{who} would charge {charge}, and nobody can be asked.", f"Give the word with --yes. {kept}")
    return confirm(f"{who} charges {charge}. What is charged is never given back. Go on? [y/N]")


@dataclass(frozen=True)
class Answers:
    """The answers that were given."""

    release: bool | None  # the owner's word for a release; None where none would happen, and nobody was asked
    again: frozenset[str] | None  # the words for second charges; None where they were refused

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of the stages: what the shell exported is no answer to this run's questions."""
        given = word.YES if self.release else ""
        return {word.VARIABLE: given, records.CONSENT: " ".join(sorted(self.again or ()))}


def ask_consent(
    context: Context, spending: "Sequence[Priced]", *, releases: bool, yes: bool, reason: str | None
) -> Answers:
    """Ask what this run needs to know; `yes` answers all of it in place of the terminal.

    Args:
        spending: the plans of the stages that would spend.
        releases: whether the stage that releases would run.
    """
    words = _ask_recharge(context, spending, yes=yes)
    if words is None:
        return Answers(None, None)
    return Answers(_ask_owner(context, yes=yes, reason=reason) if releases else None, words)


def require_given(context: Context, spending: "Sequence[Priced]") -> None:
    """Raise ConsentNeeded if something would be charged a second time and the environment has no word for it."""
    pending = _find_repeated(context, spending, records.read_consents(os.environ))
    if pending:
        words = " ".join(sorted(word for _, word in pending))
        raise ConsentNeeded(
            f"{', '.join(item.stage for item, _ in pending)} would be charged again on these data.",
            f"Nothing ran and nothing was charged. Start `palimpsest run` yourself: it names the cost and asks; or set "
            f"{records.CONSENT}='{words}' where this is started, which holds for these charges alone.",
        )


def without_release(context: Context, targets: Sequence[str]) -> list[str]:
    """Return the targets, or all stages if none is named, without the releasing one."""
    return [name for name in targets or stage_names(context.workspace) if name != RELEASING]


def _ask_owner(context: Context, *, yes: bool, reason: str | None) -> bool | None:
    """Return the owner's answer, recorded with its reason in the private zone; None if nothing is named for release."""
    variants = context.params.release.variants
    if not variants:
        return None
    given = yes or confirm(_QUESTION.format(", ".join(variants)))
    word.record(context.workspace, variants, given, reason)
    return given


def _ask_recharge(context: Context, spending: "Sequence[Priced]", *, yes: bool) -> frozenset[str] | None:
    """Return the words for what may be charged again: those in the environment, and those for what is asked now.

    None after a no. Where nobody can be asked, the stage itself refuses what has no word: only the stage knows for
    certain that it is the same run.
    """
    known = records.read_consents(os.environ)
    pending = _find_repeated(context, spending, known)
    if not pending or not (yes or sys.stdin.isatty()):
        return known
    told = _cost(context, [item for item, _ in pending])
    if yes:
        print(f"{told} --yes was given.", flush=True)
    elif not confirm(f"{told} {_CHARGE}"):
        return None
    return known | {word for _, word in pending}


def _cost(context: Context, pending: "list[Priced]") -> str:
    from palimpsest.work.plan import balance_after

    before = context.ledger.balance(context.asset.name).spent
    names = ", ".join(sorted(item.stage for item in pending))
    return _AGAIN.format(names, up(before), up(balance_after(context, pending).spent), context.asset.epsilon)


def _find_repeated(context: Context, spending: "Sequence[Priced]", known: frozenset[str]) -> "list[tuple[Priced, str]]":
    """Return what this run may charge again, with the word for it, less what has a known word."""
    if not spending:
        return []
    from palimpsest.work.plan import is_paid, next_attempt

    charges = context.ledger.charges(context.asset.name)
    found = []
    for item in spending:
        if item.run is None or item.purpose != "release" or is_paid(context, item, charges):
            continue
        now, missing = next_attempt(context, item.run, item.plan, charges)
        word = records.consent_word(item.run, charges)
        if charges_again(charges, missing, item.run, now) and word not in known:
            found.append((item, word))
    return found


def confirm(question: str) -> bool:
    """Ask on the terminal and return the answer; no answer is a no."""
    print(question, flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False
