"""What a person is asked before a run: their word for a release, and for what would be charged again."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palimpsest.cli.checks import RELEASING
from palimpsest.cli.context import Context
from palimpsest.cli.graph import stage_names
from palimpsest.errors import LedgerError
from palimpsest.files import read_json
from palimpsest.privacy.ledger import again
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.ledger.rules import attempt
from palimpsest.privacy.shown import up
from palimpsest.report.release import word
from palimpsest.workspace import MANIFEST

if TYPE_CHECKING:
    from palimpsest.cli.plan import Priced  # it loads the accountants

_QUESTION = (
    "This run would release rows of {}. Audits of private rows are in reports/internal.html, in the private zone; by "
    "default the release does not depend on them. Do you give the word of the owner of the data for this release? [y/N]"
)
_AGAIN = (
    "This run would charge {} again: what an earlier run of the same plan on these data began stays charged. The total "
    "would go from epsilon {} to {} of {:g}."
)
_CHARGE = (
    "What DVC's cache still has costs nothing all the same, and so does what a run that was killed had finished under "
    "these settings. Charge again? [y/N]"
)


def may_charge(who: str, charge: str, kept: str) -> bool:
    """Ask a terminal whether `who` may charge what is said; `kept` says what a refusal has left.

    Raises:
        LedgerError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise LedgerError(f"{who} would charge {charge}, and nobody can be asked.", f"Give the word with --yes. {kept}")
    return said_yes(f"{who} charges {charge}. What is charged is never given back. Go on? [y/N]")


@dataclass(frozen=True)
class Answers:
    """What was answered.

    Attributes:
        release: the owner's word for a release; None where none would happen, and nobody was asked.
        again: the words for second charges; None where they were refused.
    """

    release: bool | None
    again: frozenset[str] | None

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the stages: what the shell exported is no answer to this run's questions."""
        given = word.YES if self.release else ""
        return {word.VARIABLE: given, again.VARIABLE: " ".join(sorted(self.again or ()))}


def asked(context: Context, spending: "Sequence[Priced]", *, releases: bool, yes: bool, reason: str | None) -> Answers:
    """Ask what this run needs to know; `yes` answers all of it in place of the terminal.

    Args:
        spending: what would spend.
        releases: whether the stage that releases would run.
    """
    words = _words_again(context, spending, yes=yes)
    if words is None:
        return Answers(None, None)
    return Answers(_owners_word(context, yes=yes, reason=reason) if releases else None, words)


def without_release(context: Context, targets: Sequence[str]) -> list[str]:
    """The same targets, or all stages where none is named, but for the releasing one."""
    return [name for name in targets or stage_names(context.workspace) if name != RELEASING]


def _owners_word(context: Context, *, yes: bool, reason: str | None) -> bool | None:
    """The answer, recorded with its reason in the private zone; None where nothing is named to leave."""
    variants = context.params.release.variants
    if not variants:
        return None
    given = yes or said_yes(_QUESTION.format(", ".join(variants)))
    word.record(context.workspace, variants, given, reason)
    return given


def _words_again(context: Context, spending: "Sequence[Priced]", *, yes: bool) -> frozenset[str] | None:
    """The words for what may be charged again: those in the environment, and those for what is asked now.

    None after a no. Where nobody can be asked, the stage itself refuses what has no word: it alone knows for certain
    that it is the same run.
    """
    known = again.given(os.environ)
    pending = _repeated(context, spending, known)
    if not pending or not (yes or sys.stdin.isatty()):
        return known
    told = _cost(context, [item for item, _ in pending])
    if yes:
        print(f"{told} --yes was given.", flush=True)
    elif not said_yes(f"{told} {_CHARGE}"):
        return None
    return known.union(*(words for _, words in pending))


def _cost(context: Context, pending: "list[Priced]") -> str:
    from palimpsest.cli.plan import balance_after

    before = context.ledger.balance(context.asset.name).spent
    names = ", ".join(sorted(item.stage for item in pending))
    return _AGAIN.format(names, up(before), up(balance_after(context, pending).spent), context.asset.epsilon)


def _repeated(context: Context, spending: "Sequence[Priced]", known: frozenset[str]) -> "list[tuple[Priced, set[str]]]":
    """What this run may charge again, with the words for it but for those that are known."""
    charges = context.ledger.charges(context.asset.name)
    looked = {f"{one.stage}@{one.variant}" for one in charges if one.looked and one.asset == context.asset.name}
    pending = [item for item in spending if item.purpose == "release" and item.stage in looked]
    found = [(item, _words(context, item, charges) - known) for item in pending]
    return [(item, words) for item, words in found if words]


def _words(context: Context, item: "Priced", charges: Sequence[Charge]) -> set[str]:
    """The words for the runs of this plan, on the rows as they are now, that would be charged again."""
    from palimpsest.cli.plan import planned_by
    from stages.pricing import continues

    rows = _fingerprint(context)
    stage, _, variant = item.stage.partition("@")
    asked = context.asset.name, stage, variant
    own = [charge for charge in charges if (charge.asset, charge.stage, charge.variant) == asked]
    keys = {charge.run_key for charge in own if rows in (None, charge.fingerprint) and planned_by(charge, item)}
    found = set()
    for key in keys:
        now = attempt(key, charges, lambda charge: continues(charge, context.workspace))
        if now.repeats(range(len(item.plan.queries)) - now.kept.keys()):
            found.add(again.word(stage, variant, key, charges))
    return found


def _fingerprint(context: Context) -> str | None:
    """The keyed hash of the training rows that are there; None where none are."""
    path = context.workspace / MANIFEST
    return str(read_json(path)["fingerprint"]) if path.is_file() else None


def said_yes(question: str) -> bool:
    """The answer on the terminal; no answer is a no."""
    print(question, flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False
