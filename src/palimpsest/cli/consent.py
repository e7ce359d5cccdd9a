"""The questions to a person before a run: their word for a release, and for what would be charged again."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palimpsest.cli.checks import RELEASING
from palimpsest.cli.context import Context
from palimpsest.cli.graph import stage_names
from palimpsest.errors import ConsentNeeded, LedgerError
from palimpsest.privacy.ledger import again
from palimpsest.privacy.ledger.rules import charges_again
from palimpsest.privacy.shown import up
from palimpsest.report.release import word

if TYPE_CHECKING:
    from palimpsest.cli.plan import Priced  # it loads the accountants

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
    """The answers that were given.

    Attributes:
        release: the owner's word for a release; None where none would happen, and nobody was asked.
        again: the words for second charges; None where they were refused.
    """

    release: bool | None
    again: frozenset[str] | None

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of the stages: what the shell exported is no answer to this run's questions."""
        given = word.YES if self.release else ""
        return {word.VARIABLE: given, again.VARIABLE: " ".join(sorted(self.again or ()))}


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
    pending = _find_repeated(context, spending, again.read_words(os.environ))
    if pending:
        words = " ".join(sorted(word for _, word in pending))
        raise ConsentNeeded(
            f"{', '.join(item.stage for item, _ in pending)} would be charged again on these data.",
            f"Nothing ran and nothing was charged. Start `palimpsest run` yourself: it names the cost and asks; or set "
            f"{again.VARIABLE}='{words}' where this is started, which holds for these charges alone.",
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
    known = again.read_words(os.environ)
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
    from palimpsest.cli.plan import balance_after

    before = context.ledger.balance(context.asset.name).spent
    names = ", ".join(sorted(item.stage for item in pending))
    return _AGAIN.format(names, up(before), up(balance_after(context, pending).spent), context.asset.epsilon)


def _find_repeated(context: Context, spending: "Sequence[Priced]", known: frozenset[str]) -> "list[tuple[Priced, str]]":
    """Return what this run may charge again, with the word for it, less what has a known word."""
    if not spending:
        return []
    from palimpsest.cli.plan import is_paid, next_attempt

    charges = context.ledger.charges(context.asset.name)
    found = []
    for item in spending:
        if item.run is None or item.purpose != "release" or is_paid(context, item, charges):
            continue
        now, missing = next_attempt(context, item.run, item.plan, charges)
        word = again.consent_word(item.run, charges)
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
