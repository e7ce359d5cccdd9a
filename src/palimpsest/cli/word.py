"""Asking the data's owner for their word before a run releases rows: at every release, and always alike."""

from collections.abc import Sequence
from pathlib import Path

from palimpsest.cli.context import Context
from palimpsest.cli.graph import stage_names, stale
from palimpsest.report.release.word import record

RELEASE = "release"  # the stage
_QUESTION = (
    "This run would release rows of {}. Audits of private rows are in reports/internal.html, in the private zone; by "
    "default the release does not depend on them. Do you give the word of the owner of the data for this release? [y/N]"
)


def owners_word(context: Context, targets: Sequence[str], *, yes: bool, reason: str | None) -> bool | None:
    """The answer, which is recorded in the private zone; None where the run would release nothing, and nobody is asked.

    Args:
        context: the workspace.
        targets: stages to bring up to date; none means all.
        yes: answers in place of the terminal.
        reason: kept with the answer, in the private zone alone.
    """
    variants = context.params.release.variants
    if not variants or (targets and RELEASE not in targets) or RELEASE not in stale(context.workspace):
        return None
    given = yes or _asked(variants)
    record(context.workspace, variants, given, reason)
    return given


def without_release(workspace: Path, targets: Sequence[str]) -> list[str]:
    """The same targets, or all stages where none is named, but for the releasing one."""
    return [name for name in targets or stage_names(workspace) if name != RELEASE]


def _asked(variants: Sequence[str]) -> bool:
    """The answer on the terminal; no answer is a no."""
    print(_QUESTION.format(", ".join(variants)), flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False
