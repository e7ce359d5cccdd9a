"""Decides how a stopped run of `fit` goes on under its charge, and finds what it left for that."""

from collections.abc import Iterable
from pathlib import Path

from palimpsest.files import remove
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.method import Method, Resumes
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Charge, Run
from palimpsest.workspace import CHECKPOINTS


def folder(method: Method, run: Run, plan: Plan, noise_fixed: bool) -> Path | None:
    """Return where a run keeps its state for going on; None where nothing is kept.

    Exact rounds are not private, so none are kept; nor are rounds under noise that a seed fixes, which never go on.
    """
    if method.resumes is Resumes.WAVES:
        return CHECKPOINTS / method.name
    lasting = accounting.is_private(plan.event) and not noise_fixed
    if method.resumes is Resumes.ROUNDS and lasting:
        return CHECKPOINTS / method.name / run.variant / run.key[:16]
    return None


def continues(method: Method, charge: Charge, workspace: Path = Path()) -> bool:
    """Tell whether a stopped run goes on in this workspace, under the same charge."""
    if charge.steps is None or charge.noise_fixed:
        return False
    if method.resumes is Resumes.WAVES:
        return True
    if method.resumes is not Resumes.ROUNDS or not accounting.is_private(charge.event):
        return False
    stored = (workspace / CHECKPOINTS / method.name / charge.variant).glob(f"*/{charge.id}.json")
    return charge.steps_begun < charge.steps or any(stored)


def forget(method: Method, name: str, charges: Iterable[Charge]) -> None:
    """Remove the unfinished texts that the finished run of a variant, and earlier runs of it, left.

    What rounds voted over stays, as do their answers: rows are made again from both.

    Args:
        charges: all charges of the data set.
    """
    if method.resumes is Resumes.WAVES:
        for charge in charges:
            if (charge.stage, charge.variant) == (method.stage, name):
                remove(CHECKPOINTS / method.name / f"{charge.id}.json")
